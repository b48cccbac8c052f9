"""A cluster without a network, and the operator on it: an API server, controllers and kubelets.

The operator's own code runs here unmodified, in virtual time or in real time. The operator never
imports this package; its program finds the two commands here by entry point.

    model         requests and answers, fields of objects, the history that is judged
    virtual_loop  time that jumps, an order by seed, and who waits for what
    network       what a process of the operator holds, and what goes wrong on the way
    apiserver     a request, from its admission to the store; watches
    schemas       what each kind is, the words of refusals, and what patches make of an object
    admission     webhooks, which writes they review, and how
    controllers   the StatefulSet controller
    nodes         scheduler, kubelets, and pods over HTTP
    cluster       what moves by itself; zones: StatefulSets to begin with
    process       one process of the operator; world: all of it together
    trace         a history as text and as one hash
    demo          `rollout-operator demo`
    simulate      `rollout-operator simulate`
"""
