"""Another world behind the same doors: an API server, controllers and kubelets, all simulated.

The operator's own code runs on it unmodified, in virtual time or in real time. Where to find what:

    request, history    the words: what is asked and answered; all that has happened
    loop, clock, waits  time that jumps, an order by seed, and who waits for what
    door, pod_door      what a process of the operator holds: the Protocols of `kube.api` and pods
      link, trips, views  on the way: latency, lost calls, late and missing events
      faults, *_faults    what goes wrong there, by chance or by plan
    api                 the API server: routes a request to one of
      lists, streams      reads and watches; selection, labels, label_grammar, queries
      turns, writes       one write and its admission; deletions, garbage, evictions, scales
      patches             merging, json_patch
      hooks, hookrules    webhooks and whom they are asked about; reviews, registrations
      kinds               what each kind is: rules, metadata, workloads, pod*, *kinds, webhookrules
      store, tidy         versions, and JSON as the real server gives it back
      refusals, invalid   errors in its words
    cluster             what moves by itself
      statefulsets        the controller; set*, members, revisions
      kubelet             and its pods: behaviour, podstatus, pods, pace
    zones               StatefulSets to begin with
    trace, story        a history as text and as one hash
"""
