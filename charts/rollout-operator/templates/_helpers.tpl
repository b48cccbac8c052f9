{{/* Name of the chart. As a dependency under an alias it has an underscore, which no name may have. */}}
{{- define "ro.name" -}}
{{- default (replace "_" "-" .Chart.Name) .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "ro.fullname" -}}
{{- $name := default (replace "_" "-" .Chart.Name) .Values.nameOverride -}}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- default $full .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "ro.account" -}}
{{- default (.Values.serviceAccount.create | ternary (include "ro.fullname" .) "default") .Values.serviceAccount.name -}}
{{- end -}}

{{/* By these the Deployment knows its pods. They never change: a selector cannot. */}}
{{- define "ro.selector" -}}
app.kubernetes.io/name: {{ include "ro.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* Labels of an object: (list . "component"). */}}
{{- define "ro.labels" -}}
{{- $root := index . 0 -}}
{{- $fixed := include "ro.selector" $root | fromYaml -}}
{{- $fixed = merge $fixed (dict
  "helm.sh/chart" (printf "%s-%s" (replace "_" "-" $root.Chart.Name) $root.Chart.Version | replace "+" "_" | trunc 63)
  "app.kubernetes.io/version" $root.Chart.AppVersion
  "app.kubernetes.io/managed-by" $root.Release.Service
  "app.kubernetes.io/component" (index . 1)
  "app.kubernetes.io/part-of" "rollout-operator") -}}
{{- merge $fixed ($root.Values.global.commonLabels | default dict) | toYaml -}}
{{- end -}}

{{/* Name, namespace and labels of an object of the release's namespace: (list . "component" "suffix"). */}}
{{- define "ro.metadata" -}}
{{- $root := index . 0 -}}
name: {{ include "ro.fullname" $root }}{{ index . 2 }}
namespace: {{ $root.Release.Namespace | quote }}
labels:
  {{- include "ro.labels" (list $root (index . 1)) | nindent 2 }}
{{- end -}}

{{- define "ro.image" -}}
{{- $registry := .Values.global.imageRegistry | default .Values.image.registry -}}
{{- with $registry }}{{ . }}/{{ end }}{{ .Values.image.repository -}}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end -}}
{{- end -}}

{{- define "ro.pullSecrets" -}}
{{- $names := list -}}
{{- range concat (.Values.global.imagePullSecrets | default list) (.Values.imagePullSecrets | default list) -}}
{{- $names = append $names (kindIs "string" . | ternary (dict "name" .) .) -}}
{{- end -}}
{{- with $names | uniq }}imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* Whether the operator makes the certificate and writes its CA into the configurations; else empty. */}}
{{- define "ro.selfSigned" -}}
{{- if eq .Values.webhooks.certificate.source "selfSigned" }}yes{{ end -}}
{{- end -}}

{{/* Failure policy of a webhook: its own, the one that grafana's chart has for it, or that of all. */}}
{{- define "ro.failurePolicy" -}}
{{- $webhooks := (index . 0).Values.webhooks -}}
{{- $key := index . 1 -}}
{{- coalesce (get $webhooks $key | default dict).failurePolicy (get ($webhooks.failurePolicies | default dict) $key) $webhooks.failurePolicy -}}
{{- end -}}

{{/* What its webhook configurations are called, without the namespace. */}}
{{- define "ro.webhookNames" -}}
no-downscale,prepare-downscale,pod-eviction,zpdb-validation
{{- if .Values.healthChecks.enabled -}},rollout-health-check-validation{{- end -}}
{{- end -}}

{{/* Secret that is mounted where it does not. */}}
{{- define "ro.tlsSecret" -}}
{{- .Values.webhooks.certificate.secretName | default (printf "%s-webhooks" (include "ro.fullname" .)) -}}
{{- end -}}

{{/* What is right in itself and wrong together. The schema has refused what is wrong in itself. */}}
{{- define "ro.check" -}}
{{- /* Helm drops what is null before the schema sees it. What holds others stands before them. */ -}}
{{- $paths := list "rbac" "global" "image" "image.repository" "podDisruptionBudget" "hostNetwork" "log" "limits"
      "tracing" "serviceAccount" "serviceAccount.create" "scaling" "mirroring" "multiAZRollout" "releases"
      "releases.metadata" "healthChecks" "zoneTracker" "zoneTracker.configMapName" "webhooks" "webhooks.port"
      "webhooks.selfSignedCertSecretName" "webhooks.certificate" "webhooks.certificate.source"
      "webhooks.noDownscale" "webhooks.noDownscale.deployments" "webhooks.clientCertificates"
      "webhooks.clientCertificates.configMapName" "webhooks.clientCertificates.clientName" "hooks" -}}
{{- /* Needed only where what they are in is there. */ -}}
{{- if .Values.networkPolicy -}}{{- $paths = append $paths "networkPolicy.monitoringNamespace" -}}{{- end -}}
{{- if kindIs "map" (get (.Values.podSecurityContext | default dict) "seccompProfile") -}}
{{- $paths = append $paths "podSecurityContext.seccompProfile.type" -}}
{{- end -}}
{{- range $path := $paths -}}
{{- $value := $.Values -}}
{{- range splitList "." $path -}}{{- $value = index $value . -}}{{- end -}}
{{- if kindIs "invalid" $value -}}
{{- fail (printf "%s: null, or missing in values of another chart: leave it out, or upgrade with --reset-then-reuse-values in place of --reuse-values" $path) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.webhooks.clientCertificates.enabled (not .Values.webhooks.enabled) -}}
{{- fail "webhooks.clientCertificates.enabled needs webhooks.enabled" -}}
{{- end -}}
{{- with .Values.webhooks.certificate -}}
{{- if and (eq .source "existingSecret") (not .secretName) -}}
{{- fail "webhooks.certificate.source existingSecret needs webhooks.certificate.secretName" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.multiAZRollout.enabled .Values.webhooks.enabled (eq (.Values.multiAZRollout.metricsPort | default 8080 | int) (int .Values.webhooks.port)) -}}
{{- fail "multiAZRollout.metricsPort and webhooks.port are the same" -}}
{{- end -}}
{{- with .Values.networkPolicy -}}
{{- if .enabled -}}
{{- range $key := list "fromApiServer" "toApiServer" "nodes" -}}
{{- if not (index $.Values.networkPolicy $key) -}}
{{- fail (printf "networkPolicy.enabled needs networkPolicy.%s: CIDRs of your cluster" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What the operator may do in its own namespace. */}}
{{- define "ro.rules" -}}
rules:
  - apiGroups: [""]
    resources: [pods]
    verbs: [list, watch, get, delete, patch]
  - apiGroups: [apps]
    resources: [statefulsets]
    verbs: [list, watch, get{{ if or .Values.scaling.enabled .Values.webhooks.enabled }}, patch{{ end }}]
  - apiGroups: [apps]
    resources: [statefulsets/status]
    verbs: [update]
  - apiGroups: [rollout-operator.grafana.com]
    resources: [zoneawarepoddisruptionbudgets]
    verbs: [list, watch]
  - apiGroups: [rollout-operator.grafana.com]
    resources: [zoneawarepoddisruptionbudgets/status]
    verbs: [patch]
  - apiGroups: [rollout.grafana.com]
    resources: [multiazrollouts]
    verbs: [list]
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [rollout-operator]
    verbs: [get, patch]
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [create]
  - apiGroups: [events.k8s.io]
    resources: [events]
    verbs: [create, patch]
  {{- if .Values.mirroring.enabled }}
  {{- range prepend (.Values.mirroring.kinds | default list) (dict "apiGroup" "rollout-operator.grafana.com" "resource" "replicatemplates") }}
  - apiGroups: [{{ .apiGroup | quote }}]
    resources: [{{ .resource }}/scale]
    verbs: [get]
  - apiGroups: [{{ .apiGroup | quote }}]
    resources: [{{ .resource }}/status]
    verbs: [patch]
  - apiGroups: [{{ .apiGroup | quote }}]
    resources: [{{ .resource }}]
    verbs: [list, watch]
  {{- end }}
  {{- end }}
  {{- if .Values.zoneTracker.enabled }}
  - apiGroups: [""]
    resources: [configmaps]
    verbs: [create]
  - apiGroups: [""]
    resources: [configmaps]
    resourceNames: [{{ .Values.zoneTracker.configMapName }}]
    verbs: [get, patch]
  {{- end }}
  {{- if .Values.releases.enabled }}
  {{- include "ro.releaseRules" . | nindent 2 }}
  {{- end }}
  {{- if .Values.healthChecks.enabled }}
  - apiGroups: [rollout-operator.grafana.com]
    resources: [rollouthealthchecks]
    verbs: [list, watch, get]
  - apiGroups: [rollout-operator.grafana.com]
    resources: [rollouthealthchecks/status]
    verbs: [patch]
  {{- with .Values.healthChecks.secrets }}
  - apiGroups: [""]
    resources: [secrets]
    resourceNames: {{ toJson . }}
    verbs: [get]
  {{- end }}
  {{- end }}
  {{- if .Values.webhooks.enabled }}
  {{- if include "ro.selfSigned" . }}
  - apiGroups: [""]
    resources: [secrets]
    resourceNames: [{{ .Values.webhooks.selfSignedCertSecretName }}]
    verbs: [get, update]
  {{- if not .Values.webhooks.createSecret }}
  - apiGroups: [""]
    resources: [secrets]
    verbs: [create]
  {{- end }}
  {{- end }}
  {{- if .Values.webhooks.noDownscale.deployments }}
  - apiGroups: [apps]
    resources: [deployments, replicasets]
    verbs: [get]
  {{- end }}
  {{- end }}
  {{- with .Values.rbac.extraRules }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* What releases need beside that. */}}
{{- define "ro.releaseRules" -}}
- apiGroups: [kuberik.com]
  resources: [rollouts]
  verbs: [list, watch, get, patch]
- apiGroups: [kuberik.com]
  resources: [rollouts/status, rolloutschedules/status, healthchecks/status]
  verbs: [patch]
- apiGroups: [kuberik.com]
  resources: [rolloutgates]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [kuberik.com]
  resources: [rolloutschedules, healthchecks]
  verbs: [list, watch, get]
- apiGroups: [kuberik.com]
  resources: [rolloutschedules/finalizers]
  verbs: [update]
- apiGroups: [image.toolkit.fluxcd.io]
  resources: [imagepolicies, imagerepositories]
  verbs: [list, watch]
- apiGroups: [source.toolkit.fluxcd.io]
  resources: [ocirepositories]
  verbs: [list, watch, get, patch]
- apiGroups: [kustomize.toolkit.fluxcd.io]
  resources: [kustomizations]
  verbs: [list, watch, get, patch]
{{- with .Values.releases }}
{{- if and .readPullSecrets (eq .metadata "registry") }}
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
{{- end }}
{{- end }}
{{- end -}}

{{/* What MultiAZRollouts need beside that. */}}
{{- define "ro.policyRules" -}}
rules:
  - apiGroups: [rollout.grafana.com]
    resources: [multiazrollouts]
    verbs: [list, watch, get]
  - apiGroups: [rollout.grafana.com]
    resources: [multiazrollouts/status]
    verbs: [patch]
  - apiGroups: [apps]
    resources: [statefulsets]
    verbs: [patch]
{{- end -}}
