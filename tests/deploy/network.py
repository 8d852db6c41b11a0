"""What a set of NetworkPolicies lets through, by the rules of the Kubernetes documentation: a pod that a policy selects takes only what
some policy allows; both ends have to agree. For tests; knows pod and namespace selectors, blocks of addresses, named ports and ranges of ports.
"""
import ipaddress


def matches(selector, labels):
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for need in selector.get("matchExpressions", []):
        assert need["operator"] == "In", "another operator: teach it here"
        if labels.get(need["key"]) not in need["values"]:
            return False
    return True


class Pod:
    """`address`: of one outside the cluster, which has no labels; a block of addresses names no pod."""

    def __init__(self, labels, namespace="ns", ports=None, address=None):
        self.labels, self.namespace, self.ports, self.address = labels, namespace, ports or {}, address


def peer_is(peer, pod, home):
    if "ipBlock" in peer:
        return pod.address is not None and ipaddress.ip_address(pod.address) in ipaddress.ip_network(peer["ipBlock"]["cidr"])
    if pod.address is not None:
        return False
    if "namespaceSelector" in peer:
        if not matches(peer["namespaceSelector"], {"kubernetes.io/metadata.name": pod.namespace}):
            return False
    elif pod.namespace != home:
        return False
    return matches(peer.get("podSelector", {}), pod.labels)


def port_is(port, number, target):
    wanted = port["port"]
    if "endPort" in port:
        return wanted <= number <= port["endPort"]
    return number == (target.ports.get(wanted) if isinstance(wanted, str) else wanted)


def side_allows(policies, here, there, number, direction, target, home="ns"):
    kind, key = ("Ingress", "from") if direction == "in" else ("Egress", "to")
    ours = [p["spec"] for p in policies if kind in p["spec"]["policyTypes"] and here.namespace == home and matches(p["spec"]["podSelector"], here.labels)]
    if not ours:
        return True
    for spec in ours:
        for rule in spec.get(kind.lower()) or []:
            peers, ports = rule.get(key), rule.get("ports")
            if (not peers or any(peer_is(peer, there, home) for peer in peers)) and (
                not ports or any(port_is(port, number, target) for port in ports)
            ):
                return True
    return False


def allowed(policies, source, target, port):
    number = target.ports.get(port, port)
    return side_allows(policies, source, target, number, "out", target) and side_allows(policies, target, source, number, "in", target)
