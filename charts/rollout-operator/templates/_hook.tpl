{{/* Name of what runs beside the operator: (list . "name"). */}}
{{- define "ro.hookName" -}}
{{- printf "%s-%s" (include "ro.fullname" (index . 0) | trunc 50 | trimSuffix "-") (index . 1) -}}
{{- end -}}

{{/*
What runs beside the operator, once, with an account and rights of its own that go when it has ended:
(dict "root" . "name" "..." "event" "..." "args" (list) "rules" (list)), with "local" rules of the
namespace, and "crds" where the kinds are mounted.
*/}}
{{- define "ro.hook" -}}
{{- $root := .root -}}
{{- $isTest := eq .event "test" -}}
{{- $name := include "ro.hookName" (list $root .name) -}}
{{- $wide := printf "%s-%s" $name $root.Release.Namespace -}}
{{- $labels := include "ro.labels" (list $root "hooks") | fromYaml -}}
{{- /* Not those that the Service selects. */}}
{{- $labels = merge (dict "app.kubernetes.io/name" (printf "%s-hooks" (include "ro.name" $root | trunc 57))) $labels -}}
{{- /* What keeps a mesh out of the operator's pods has to keep it out of these: a Job with a proxy never ends. */}}
{{- $podLabels := merge dict $labels ($root.Values.hooks.podLabels | default dict) ($root.Values.podLabels | default dict) -}}
{{- $podAnnotations := merge dict ($root.Values.hooks.podAnnotations | default dict) ($root.Values.podAnnotations | default dict) -}}
{{- $subject := dict "kind" "ServiceAccount" "name" $name "namespace" $root.Release.Namespace -}}
{{- $here := dict "name" $name "namespace" $root.Release.Namespace -}}
{{- $objects := list (dict "apiVersion" "v1" "kind" "ServiceAccount" "metadata" $here) -}}
{{- $rbac := "rbac.authorization.k8s.io" -}}
{{- $objects = append $objects (dict "apiVersion" (printf "%s/v1" $rbac) "kind" "ClusterRole" "metadata" (dict "name" $wide) "rules" .rules) -}}
{{- $objects = append $objects (dict "apiVersion" (printf "%s/v1" $rbac) "kind" "ClusterRoleBinding" "metadata" (dict "name" $wide)
      "roleRef" (dict "apiGroup" $rbac "kind" "ClusterRole" "name" $wide) "subjects" (list $subject)) -}}
{{- with .local -}}
{{- $objects = append $objects (dict "apiVersion" (printf "%s/v1" $rbac) "kind" "Role" "metadata" $here "rules" .) -}}
{{- $objects = append $objects (dict "apiVersion" (printf "%s/v1" $rbac) "kind" "RoleBinding" "metadata" $here
      "roleRef" (dict "apiGroup" $rbac "kind" "Role" "name" $name) "subjects" (list $subject)) -}}
{{- end -}}
{{- if .crds -}}
{{- $files := dict -}}
{{- range $path, $content := $root.Subcharts.crds.Files.Glob "crds/*.yaml" -}}
{{- if or $root.Values.multiAZRollout.enabled (ne (base $path) "multiazrollouts.yaml") -}}
{{- $_ := set $files (base $path) (toString $content) -}}
{{- end -}}
{{- end -}}
{{- $objects = append $objects (dict "apiVersion" "v1" "kind" "ConfigMap" "metadata" $here "data" $files) -}}
{{- end -}}
{{- $made := list -}}
{{- range $objects -}}
{{- $made = append $made (merge (dict "metadata" (merge (dict "labels" $labels "annotations" (dict
      "helm.sh/hook" $.event "helm.sh/hook-weight" "-5"
      "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded,hook-failed")) .metadata)) .) -}}
{{- end -}}
{{- /* `helm test --logs` reads a log for each hook, and fails where no pod has its name: one list, called like the pod. */}}
{{- if $isTest -}}
{{- $made = list (dict "apiVersion" "v1" "kind" "List" "items" $made
      "metadata" (merge (dict "name" $name) (index $made 0).metadata)) -}}
{{- end -}}
{{- range $made }}
---
{{ toYaml . }}
{{- end }}
---
apiVersion: {{ $isTest | ternary "v1" "batch/v1" }}
kind: {{ $isTest | ternary "Pod" "Job" }}
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels:
    {{- $isTest | ternary $podLabels $labels | toYaml | nindent 4 }}
  annotations:
    {{- $isTest | ternary $podAnnotations dict | merge (dict
          "helm.sh/hook" .event
          "helm.sh/hook-delete-policy" (printf "before-hook-creation%s" ($isTest | ternary "" ",hook-succeeded")))
        | toYaml | nindent 4 }}
{{- $pod := include "ro.hookPod" (merge (dict "account" $name) .) }}
spec:
  {{- if $isTest }}
  {{- $pod | nindent 2 }}
  {{- else }}
  backoffLimit: 3
  activeDeadlineSeconds: {{ $root.Values.hooks.activeDeadlineSeconds }}
  template:
    metadata:
      labels:
        {{- toYaml $podLabels | nindent 8 }}
      {{- with $podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      {{- $pod | nindent 6 }}
  {{- end }}
{{ end -}}

{{- define "ro.hookPod" -}}
{{- $root := .root -}}
serviceAccountName: {{ .account }}
automountServiceAccountToken: true
enableServiceLinks: false
restartPolicy: Never
{{- with include "ro.pullSecrets" $root }}
{{ . }}
{{- end }}
{{- range $key := list "podSecurityContext" "nodeSelector" "affinity" "tolerations" }}
{{- with index $root.Values $key }}
{{ eq $key "podSecurityContext" | ternary "securityContext" $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
containers:
  - name: {{ first .args }}
    image: {{ include "ro.image" $root | quote }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    args: {{ .args | toJson }}
    {{- with $root.Values.resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with $root.Values.securityContext }}
    securityContext:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- if .crds }}
    volumeMounts:
      - name: crds
        mountPath: /crds
        readOnly: true
    {{- end }}
{{- if .crds }}
volumes:
  - name: crds
    configMap:
      name: {{ .account }}
{{- end }}
{{- end -}}
