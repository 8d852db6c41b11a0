{{/* What the schema can't say: values that contradict one another stop the installation with what to do. */}}
{{- define "baton.refuse" -}}
{{- $pool := (first .).pool -}}
{{- fail (printf "%s%s" (ternary (printf "models.%s: " $pool) "" (not (empty $pool))) (last .)) -}}
{{- end -}}

{{/* What several models need of one another. */}}
{{- define "baton.modelChecks" -}}
{{- include "baton.setPools" . -}}
{{- $names := dict .Values.model.name "model.name" -}}
{{- $classifiers := list -}}
{{- range $key, $pool := .pools -}}
{{- $name := $pool.Values.model.name -}}
{{- with get $names $name -}}
{{- fail (printf "models.%s.model.name is %s, as %s is: clients tell models apart by name" $key $name .) -}}
{{- end -}}
{{- $_ := set $names $name (printf "models.%s.model.name" $key) -}}
{{- $longest := printf "%s-prefill-%s" (include "baton.fullname" $) $key -}}
{{- if gt (len $longest) 63 -}}
{{- fail (printf "models.%s: %s is longer than the 63 characters of a Service's name: shorten the key, or fullnameOverride" $key $longest) -}}
{{- end -}}
{{- with (index $.Values.models $key).classifier -}}{{- $classifiers = append $classifiers . -}}{{- end -}}
{{- include "baton.checks" $pool -}}
{{- end -}}
{{- if and .Values.moderation.policy (not $classifiers) -}}
{{- fail "moderation.policy needs a model that judges: give one of models a classifier" -}}
{{- end -}}
{{- end -}}

{{- define "baton.checks" -}}
{{- $v := .Values -}}
{{- if and (hasKey $v "enabled") (not $v.enabled) -}}
{{- include "baton.refuse" (list $ "enabled is false: it is a parent chart's, for the `condition` of its dependency, and alone it would leave nothing out") -}}
{{- end -}}
{{- if not (regexMatch "^[a-z]" (include "baton.fullname" $)) -}}
{{- include "baton.refuse" (list $ (printf "%s begins the names of Services, which begin with a letter: set fullnameOverride" (include "baton.fullname" $))) -}}
{{- end -}}
{{- range $label, $value := $v.commonLabels -}}
{{- if or (hasPrefix "app.kubernetes.io/" $label) (eq $label "helm.sh/chart") -}}
{{- include "baton.refuse" (list $ (printf "commonLabels: %s is a label of the chart's own" $label)) -}}
{{- end -}}
{{- end -}}
{{- if and $v.networkPolicy.enabled (not $v.networkPolicy.clients) -}}
{{- range $role := ternary (list "router" "gateway") (list "router") $v.gateway.enabled -}}
{{- $type := (index $v $role).service.type -}}
{{- if ne $type "ClusterIP" -}}
{{- include "baton.refuse" (list $ (printf "%s.service.type is %s, for clients outside the cluster, and networkPolicy admits pods of this namespace alone: name those who may come in networkPolicy.clients, for example [{ipBlock: {cidr: 10.0.0.0/8}}] (with the nodes' addresses, if the balancer hides the clients'), or set networkPolicy.enabled to false" $role $type)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with $v.observability -}}
{{- if .serviceMonitor.scrapeTimeout -}}
{{- if gt (include "baton.milliseconds" .serviceMonitor.scrapeTimeout | int64) (include "baton.milliseconds" .serviceMonitor.interval | int64) -}}
{{- include "baton.refuse" (list $ (printf "observability.serviceMonitor.scrapeTimeout (%s) is more than interval (%s), which Prometheus does not take" .serviceMonitor.scrapeTimeout .serviceMonitor.interval)) -}}
{{- end -}}
{{- end -}}
{{- $auth := .prometheusAuth | default dict -}}
{{- if and $auth.modes (not $auth.authenticationRef) -}}
{{- include "baton.refuse" (list $ "observability.prometheusAuth.modes needs what to sign in with: name a TriggerAuthentication in observability.prometheusAuth.authenticationRef") -}}
{{- end -}}
{{- end -}}
{{- if and (eq $v.model.source "image") (not $v.model.image.path) -}}
{{- include "baton.refuse" (list $ "model.source is image: name the folder in model.image.path") -}}
{{- end -}}
{{- if and (eq $v.model.source "pvc") (not $v.model.pvc.claimName) -}}
{{- include "baton.refuse" (list $ "model.source is pvc: name the claim in model.pvc.claimName") -}}
{{- end -}}
{{- if and (eq $v.model.source "hostPath") (not $v.model.hostPath.path) -}}
{{- include "baton.refuse" (list $ "model.source is hostPath: name the folder in model.hostPath.path") -}}
{{- end -}}
{{- if eq $v.model.source "huggingFace" -}}
{{- if not $v.model.huggingFace.repository -}}{{- include "baton.refuse" (list $ "model.source is huggingFace: name the repository in model.huggingFace.repository") -}}{{- end -}}
{{- if not $v.model.huggingFace.revision -}}{{- include "baton.refuse" (list $ "model.source is huggingFace: pin a commit in model.huggingFace.revision (40 hex digits)") -}}{{- end -}}
{{- if not $v.model.huggingFace.files -}}{{- include "baton.refuse" (list $ "model.source is huggingFace: list the files and their SHA-256 in model.huggingFace.files") -}}{{- end -}}
{{- end -}}
{{- if eq $v.model.source "s3" -}}
{{- if not $v.model.s3.url -}}{{- include "baton.refuse" (list $ "model.source is s3: give the folder's address in model.s3.url") -}}{{- end -}}
{{- if not $v.model.s3.files -}}{{- include "baton.refuse" (list $ "model.source is s3: list the files and their SHA-256 in model.s3.files") -}}{{- end -}}
{{- end -}}
{{- if include "baton.downloads" $ -}}
{{- $files := (index $v.model $v.model.source).files -}}
{{- if and $v.model.file (not (hasKey $files $v.model.file)) -}}
{{- include "baton.refuse" (list $ (printf "model.file is %s, and model.%s.files does not list it: give its SHA-256 there" $v.model.file $v.model.source)) -}}
{{- end -}}
{{- if not (or $v.model.file (hasKey $files "config.json")) -}}
{{- range $name, $sum := $files -}}
{{- if hasSuffix ".gguf" $name -}}
{{- include "baton.refuse" (list $ (printf "model.%s.files has a GGUF file and no config.json: name the file in model.file (%s)" $v.model.source $name)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if regexMatch "-[0-9]{5}-of-[0-9]{5}[.]gguf$" $v.model.file -}}
{{- include "baton.refuse" (list $ (printf "model.file is %s, one of several parts, and a model in several GGUF files is not read: merge them into one" $v.model.file)) -}}
{{- end -}}
{{- if and $v.tls.enabled (not $v.tls.existingSecret) (not $v.tls.certManager.enabled) -}}
{{- include "baton.refuse" (list $ "tls.enabled: name a Secret in tls.existingSecret or set tls.certManager.enabled") -}}
{{- end -}}
{{- if and $v.tls.certManager.enabled (not $v.tls.certManager.issuerRef.name) -}}
{{- include "baton.refuse" (list $ "tls.certManager.enabled: name the issuer in tls.certManager.issuerRef") -}}
{{- end -}}
{{- if and $v.billing.ledger.inStore (not $v.store.url) -}}
{{- include "baton.refuse" (list $ "billing.ledger.inStore keeps the ledger in a store, and none is named: give store.url") -}}
{{- end -}}
{{- if and $v.billing.ledger.inStore $v.billing.ledger.volume -}}
{{- include "baton.refuse" (list $ "billing.ledger: one of volume and inStore, since routers keep one ledger") -}}
{{- end -}}
{{- if and $v.store.password.existingSecret (not $v.store.url) -}}
{{- include "baton.refuse" (list $ "store.password is of a store, and none is named: give store.url") -}}
{{- end -}}
{{- if and $v.tls.certManager.enabled (not $v.tls.enabled) -}}
{{- include "baton.refuse" (list $ "tls.certManager.enabled needs tls.enabled: the certificate would be made and not used") -}}
{{- end -}}
{{- if and $v.auth.tenants.existingSecret (not $v.auth.testKey.existingSecret) (not $v.tls.clientCaSecret) -}}
{{- include "baton.refuse" (list $ "auth.tenants: name a Secret with an API key in auth.testKey.existingSecret, so that `helm test` may ask something (or let clients show certificates: tls.clientCaSecret)") -}}
{{- end -}}
{{- range $role := without (include "baton.roles" $ | fromYamlArray) "router" -}}
{{- $r := index $v $role -}}
{{- $backend := $r.backend | default "auto" -}}
{{- if and (eq $backend "cpu") (gt (int $r.gpus) 0) -}}
{{- include "baton.refuse" (list $ (printf "%s.backend is cpu, and %s.gpus is %d: they would stand idle; set gpus to 0, or backend to auto" $role $role (int $r.gpus))) -}}
{{- end -}}
{{- if and (eq $backend "cuda") (eq (int $r.gpus) 0) (not $r.resourceClaims) -}}
{{- include "baton.refuse" (list $ (printf "%s.backend is cuda, and its pods have no GPU: ask for GPUs by number in %s.gpus, or by claims in %s.resourceClaims" $role $role $role)) -}}
{{- end -}}
{{- if and (eq $backend "auto") (eq (int $r.gpus) 0) $r.resourceClaims -}}
{{- include "baton.refuse" (list $ (printf "%s.resourceClaims may bring GPUs or other devices, and the chart can't see which: set %s.backend to cuda if its workers compute on what they bring, or to cpu" $role $role)) -}}
{{- end -}}
{{- end -}}
{{- $nccl := eq $v.link.name "nccl" -}}
{{- $n := $v.node -}}
{{- if and $nccl (not $n.enabled) (or (eq (include "baton.backend" $v.decode) "cpu") (and $v.prefill.enabled (eq (include "baton.backend" $v.prefill) "cpu"))) -}}
{{- include "baton.refuse" (list $ "link.name is nccl, which goes from GPU to GPU: give both pools GPUs (prefill.gpus, decode.gpus, or claims and backend cuda), or use host") -}}
{{- end -}}
{{- if and $nccl $n.enabled (eq (include "baton.backend" $n) "cpu") -}}
{{- include "baton.refuse" (list $ "link.name is nccl, which goes from GPU to GPU: give the node its GPUs (node.gpus, or claims and backend cuda), or use host") -}}
{{- end -}}
{{- if and (ne $v.link.transport "any") (not $nccl) -}}
{{- include "baton.refuse" (list $ (printf "link.transport is %s, which is a choice of NCCL's, and link.name is %s: set link.name to nccl, or link.transport to any" $v.link.transport $v.link.name)) -}}
{{- end -}}
{{- if include "baton.linkTest" $ -}}
{{- if and (not $n.enabled) (not $v.prefill.enabled) -}}
{{- include "baton.refuse" (list $ "link.floorGbps and link.transport test the link to a prefill worker, and prefill.enabled is false: set them to 0 and any") -}}
{{- end -}}
{{- if and $n.enabled (eq (int $n.prefillWorkers) 0) -}}
{{- include "baton.refuse" (list $ "link.floorGbps and link.transport test the link to a prefill worker, and node.prefillWorkers is 0: set them to 0 and any") -}}
{{- end -}}
{{- end -}}
{{- if and $n.enabled (gt (int $n.gpus) 0) (gt (mul (int (include "baton.nodeSize" $)) (int $n.tensorParallel)) (int64 $n.gpus)) -}}
{{- include "baton.refuse" (list $ (printf "node.prefillWorkers (%d) and node.decodeWorkers (%d) with node.tensorParallel (%d) take %d GPUs, and node.gpus is %d" (int $n.prefillWorkers) (int $n.decodeWorkers) (int $n.tensorParallel) (mul (int (include "baton.nodeSize" $)) (int $n.tensorParallel)) (int $n.gpus))) -}}
{{- end -}}
{{- with $v.link.portRange -}}
{{- $range := regexSplit "-" . -1 -}}
{{- if or (ge (int (index $range 0)) (int (index $range 1))) (lt (int (index $range 0)) 10000) (gt (int (index $range 1)) 65535) -}}
{{- include "baton.refuse" (list $ (printf "link.portRange is %s: give the first and the last of at least two ports from 10000 to 65535, for example 50000-59999" .)) -}}
{{- end -}}
{{- end -}}
{{- if and $v.route.enabled (not $v.route.parentRefs) -}}
{{- include "baton.refuse" (list $ "route.enabled: name the Gateway in route.parentRefs, for example [{name: public, namespace: gateways}]") -}}
{{- end -}}
{{- if and $v.tls.enabled $v.gateway.enabled (ne $v.gateway.service.type "ClusterIP") (not (include "baton.gatewayTlsSecret" $)) -}}
{{- include "baton.refuse" (list $ (printf "tls.enabled: gateway.service.type %s shows clients a gateway without TLS: name its certificate in gateway.tls.existingSecret, or leave the type at ClusterIP behind a proxy with TLS" $v.gateway.service.type)) -}}
{{- end -}}
{{- if and $v.gateway.route.enabled (not $v.gateway.enabled) -}}
{{- include "baton.refuse" (list $ "gateway.route.enabled needs gateway.enabled: the route would lead nowhere") -}}
{{- end -}}
{{- if and $v.gateway.route.enabled (not $v.gateway.route.parentRefs) -}}
{{- include "baton.refuse" (list $ "gateway.route.enabled: name the Gateway in gateway.route.parentRefs, for example [{name: public, namespace: gateways}]") -}}
{{- end -}}
{{- $plain := include "baton.image" (dict "root" $ "image" dict "backend" "cpu") -}}
{{- range $role := include "baton.roles" $ | fromYamlArray -}}
{{- $r := index $v $role -}}
{{- if $r.hostNetwork -}}
{{- if $v.networkPolicy.enabled -}}
{{- include "baton.refuse" (list $ (printf "%s.hostNetwork takes the pods out of reach of every NetworkPolicy, which would then deny the rest of the fleet their traffic: set networkPolicy.enabled to false and fence the nodes' network, or leave hostNetwork off" $role)) -}}
{{- end -}}
{{- if and $v.link.portRange $nccl (ne $role "router") -}}
{{- include "baton.refuse" (list $ (printf "link.portRange is set in the pod's network namespace, and %s.hostNetwork has none of its own: set net.ipv4.ip_local_port_range on the nodes, and link.portRange to nothing" $role)) -}}
{{- end -}}
{{- end -}}
{{- range $maker := list "amd.com/" "gpu.intel.com/" "habana.ai/" "google.com/" "aws.amazon.com/" -}}
{{- if hasPrefix $maker $r.gpuResource -}}
{{- include "baton.refuse" (list $ (printf "%s.gpuResource is %s: Baton computes on NVIDIA's GPUs (nvidia.com/gpu) and on CPUs" $role $r.gpuResource)) -}}
{{- end -}}
{{- end -}}
{{- $ranks := and (ne $role "router") (gt (int $r.tensorParallel) 1) -}}
{{- if and $ranks (or (contains "mig-" $r.gpuResource) (hasSuffix ".shared" $r.gpuResource)) -}}
{{- include "baton.refuse" (list $ (printf "%s.tensorParallel is %d, and its ranks speak by NCCL, which has no way between parts of one GPU (%s.gpuResource is %s): use whole GPUs, or tensorParallel 1" $role (int $r.tensorParallel) $role $r.gpuResource)) -}}
{{- end -}}
{{- if and $nccl (ne $role "router") (contains "mig-" $r.gpuResource) -}}
{{- include "baton.refuse" (list $ (printf "%s.gpuResource is %s: NCCL takes the slices of one GPU for the same GPU, and there is no way from one to another: use link.name host, or whole GPUs" $role $r.gpuResource)) -}}
{{- end -}}
{{- if and $nccl (ne $role "router") (hasSuffix ".shared" $r.gpuResource) -}}
{{- include "baton.refuse" (list $ (printf "%s.gpuResource is %s: NCCL takes no two workers on one GPU: use link.name host, or whole GPUs" $role $r.gpuResource)) -}}
{{- end -}}
{{- $backend := include "baton.backend" $r -}}
{{- $why := ternary (printf "%s.gpus is %d" $role (int $r.gpus)) (printf "%s.backend is %s" $role $backend) (eq ($r.backend | default "auto") "auto") -}}
{{- $twice := dict -}}
{{- range $r.resourceClaims -}}
{{- if hasKey $twice .name -}}
{{- include "baton.refuse" (list $ (printf "%s.resourceClaims: there are two claims %s" $role .name)) -}}
{{- end -}}
{{- $_ := set $twice .name true -}}
{{- end -}}
{{- if eq $backend "cuda" -}}
{{- if and $v.image.digest (not $r.image.digest) (not $r.image.tag) -}}
{{- include "baton.refuse" (list $ (printf "%s, and image.digest is the image of roles without GPUs: set %s.image.digest to the digest of the one that deploy/container/Dockerfile.cuda makes" $why $role)) -}}
{{- end -}}
{{- $image := include "baton.image" (dict "root" $ "image" $r.image "backend" $backend) -}}
{{- if and (eq $image $plain) (not (contains "cuda" $image)) -}}
{{- include "baton.refuse" (list $ (printf "%s, so it runs with --backend=cuda, and %s is the image of roles without GPUs: build deploy/container/Dockerfile.cuda, push it as %s:%s, and leave %s.image.tag empty or set it to that tag" $why $image $v.image.repository (include "baton.cudaTag" $) $role)) -}}
{{- end -}}
{{- range $key := list "keyDtype" "valueDtype" -}}
{{- if and (ne $role "router") (eq (index $v.kv $key) "i4") -}}
{{- include "baton.refuse" (list $ (printf "kv.%s is i4, which only CPUs compute with, and %s: use f8 or i8" $key $why)) -}}
{{- end -}}
{{- end -}}
{{- if and (ne $role "router") $r.selfDraft -}}
{{- include "baton.refuse" (list $ (printf "%s.selfDraft drafts on CPUs, and %s: leave it off, or name a smaller model in %s.draftModel" $role $why $role)) -}}
{{- end -}}
{{- else if ne $role "router" -}}
{{- range $key := list "keyDtype" "valueDtype" -}}
{{- $dtype := index $v.kv $key -}}
{{- if has $dtype (list "f16" "f8") -}}
{{- include "baton.refuse" (list $ (printf "kv.%s is %s, which only GPUs compute with, and %s: use f32, bf16, i8 or i4, or give both pools GPUs" $key $dtype $why)) -}}
{{- end -}}
{{- end -}}
{{- with ($r.resources.limits | default dict).memory -}}
{{- $workers := ternary (include "baton.nodeSize" $) "1" (eq $role "node") | float64 -}}
{{- if ge (mulf $workers (include "baton.bytes" $r.kvMemory | float64)) (include "baton.bytes" . | float64) -}}
{{- include "baton.refuse" (list $ (printf "%s.kvMemory (%s for each worker) leaves nothing of %s.resources.limits.memory (%v) for the model's weights: raise the limit or lower kvMemory" $role $r.kvMemory $role .)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and (gt (int $r.gpus) 0) (gt (int $r.tensorParallel) (int $r.gpus)) -}}
{{- include "baton.refuse" (list $ (printf "%s.tensorParallel (%d) is more than %s.gpus (%d): a pod can't split a model over GPUs that it does not have" $role (int $r.tensorParallel) $role (int $r.gpus))) -}}
{{- end -}}
{{- end -}}
{{- $roles := include "baton.roles" $ | fromYamlArray -}}
{{- range $role := ternary (append $roles "gateway") $roles $v.gateway.enabled -}}
{{- $r := index $v $role -}}
{{- range $label, $value := $r.podLabels -}}
{{- if or (hasPrefix "app.kubernetes.io/" $label) (hasKey $v.commonLabels $label) -}}
{{- include "baton.refuse" (list $ (printf "%s.podLabels: %s is a label of the chart's own, or one of commonLabels" $role $label)) -}}
{{- end -}}
{{- end -}}
{{- $names := dict $role true -}}
{{- include "baton.setPools" $ -}}
{{- range $pool := ternary (prepend (values $.pools) $) (ternary list (list $) (eq $role "gateway")) (eq $role "router") -}}
{{- if include "baton.downloads" $pool -}}{{- $_ := set $names (printf "model%s" (include "baton.suffix" $pool)) true -}}{{- end -}}
{{- end -}}
{{- if and (not (has $role (list "router" "gateway"))) (eq $v.link.name "nccl") $v.link.plugin.image -}}{{- $_ := set $names "nccl-plugin" true -}}{{- end -}}
{{- range $key := list "extraInitContainers" "extraContainers" -}}
{{- range index $r $key -}}
{{- if hasKey $names .name -}}
{{- include "baton.refuse" (list $ (printf "%s.%s: there is another container %s in the pod" $role $key .name)) -}}
{{- end -}}
{{- $_ := set $names .name true -}}
{{- end -}}
{{- end -}}
{{- $service := $r.service | default dict -}}
{{- range $label, $value := $service.labels -}}
{{- if or (hasPrefix "app.kubernetes.io/" $label) (hasKey $v.commonLabels $label) -}}
{{- include "baton.refuse" (list $ (printf "%s.service.labels: %s is a label of the chart's own, or one of commonLabels" $role $label)) -}}
{{- end -}}
{{- end -}}
{{- $spec := $service.spec | default dict -}}
{{- range $key := list "loadBalancerClass" "loadBalancerIP" "loadBalancerSourceRanges" "allocateLoadBalancerNodePorts" "healthCheckNodePort" -}}
{{- if and (hasKey $spec $key) (ne $service.type "LoadBalancer") -}}
{{- include "baton.refuse" (list $ (printf "%s.service.spec.%s is of a Service of type LoadBalancer, and %s.service.type is %s" $role $key $role $service.type)) -}}
{{- end -}}
{{- end -}}
{{- if eq ($service.type | default "") "ClusterIP" -}}
{{- range $key, $value := dict "spec.externalTrafficPolicy" $spec.externalTrafficPolicy "nodePort" $service.nodePort "grpcNodePort" $service.grpcNodePort -}}
{{- if $value -}}
{{- include "baton.refuse" (list $ (printf "%s.service.%s is of a Service that nodes have a port for, and %s.service.type is ClusterIP: set it to NodePort or LoadBalancer" $role $key $role)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $passed := dict -}}
{{- $flags := "" -}}
{{- if eq $role "gateway" -}}
{{- $flags = include "baton.gatewayFlags" $ -}}
{{- else -}}
{{- $flags = include "baton.flags" (dict "root" $ "role" $role "r" $r) -}}
{{- end -}}
{{- range $flags | fromYamlArray -}}
{{- $_ := set $passed (splitList "=" . | first) true -}}
{{- end -}}
{{- range $r.extraArgs -}}
{{- if hasKey $passed (splitList "=" . | first) -}}
{{- include "baton.refuse" (list $ (printf "%s.extraArgs repeats %s, which the chart passes already, and no process takes a flag twice: set the chart's own value for it" $role (splitList "=" . | first))) -}}
{{- end -}}
{{- end -}}
{{- if ne $role "node" -}}
{{- if and $r.autoscaling.enabled (gt (int $r.autoscaling.minReplicas) (int $r.autoscaling.maxReplicas)) -}}
{{- include "baton.refuse" (list $ (printf "%s.autoscaling.minReplicas (%d) is more than maxReplicas (%d)" $role (int $r.autoscaling.minReplicas) (int $r.autoscaling.maxReplicas))) -}}
{{- end -}}
{{- end -}}
{{- if and $r.pdb.enabled (not (kindIs "invalid" $r.pdb.minAvailable)) (not (kindIs "invalid" $r.pdb.maxUnavailable)) -}}
{{- include "baton.refuse" (list $ (printf "%s.pdb: set maxUnavailable to null to use minAvailable; a budget has one of them" $role)) -}}
{{- end -}}
{{- $least := ternary (default dict $r.autoscaling).minReplicas $r.replicas (and (ne $role "node") $r.autoscaling.enabled) -}}
{{- if $r.pdb.enabled -}}
{{- if and (kindIs "float64" $r.pdb.minAvailable) (ge (int $r.pdb.minAvailable) (int $least)) -}}
{{- include "baton.refuse" (list $ (printf "%s.pdb.minAvailable (%d) is all of its %d pods: no node that runs one could ever be drained; raise replicas, or lower it" $role (int $r.pdb.minAvailable) (int $least))) -}}
{{- end -}}
{{- if has (toString $r.pdb.minAvailable) (list "100%") -}}
{{- include "baton.refuse" (list $ (printf "%s.pdb.minAvailable is 100%%: no node that runs one of its pods could ever be drained" $role)) -}}
{{- end -}}
{{- if has (toString $r.pdb.maxUnavailable) (list "0" "0%") -}}
{{- include "baton.refuse" (list $ (printf "%s.pdb.maxUnavailable is %v: no node that runs one of its pods could ever be drained" $role $r.pdb.maxUnavailable)) -}}
{{- end -}}
{{- end -}}
{{- if ne $role "node" -}}
{{- if and (has (toString $r.strategy.maxSurge) (list "0" "0%")) (has (toString $r.strategy.maxUnavailable) (list "0" "0%")) -}}
{{- include "baton.refuse" (list $ (printf "%s.strategy: maxSurge and maxUnavailable are both 0, so no pod could ever be replaced" $role)) -}}
{{- end -}}
{{- end -}}
{{- if ($r.lifecycle | default dict).preStop -}}
{{- if gt (int $r.preStopSeconds) 0 -}}
{{- include "baton.refuse" (list $ (printf "%s.lifecycle.preStop: the chart's own hook is there, a wait of %s.preStopSeconds (%d); set preStopSeconds to 0 to have yours in its place" $role $role (int $r.preStopSeconds))) -}}
{{- end -}}
{{- if kindIs "invalid" $r.terminationGracePeriodSeconds -}}
{{- include "baton.refuse" (list $ (printf "%s.lifecycle.preStop: its time counts against the pod's grace, and the chart does not know it: set %s.terminationGracePeriodSeconds to the hook's longest time + longestGenerationSeconds + 15" $role $role)) -}}
{{- end -}}
{{- end -}}
{{- if not (kindIs "invalid" $r.terminationGracePeriodSeconds) -}}
{{- $least := add (int $r.preStopSeconds) (int $v.longestGenerationSeconds) -}}
{{- if lt (int $r.terminationGracePeriodSeconds) (int $least) -}}
{{- include "baton.refuse" (list $ (printf "%s.terminationGracePeriodSeconds (%d) is less than preStopSeconds + longestGenerationSeconds (%d): answers would be cut short; raise it, or lower longestGenerationSeconds" $role (int $r.terminationGracePeriodSeconds) (int $least))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
