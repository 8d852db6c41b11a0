#!/usr/bin/env python3
"""Makes JSON schemas for kubeconform from Kubernetes' own OpenAPI document and from operators' CRDs, for the kinds that our chart uses.

    schemas.py TOOLS KUBERNETES CRD_FOLDER...     folders are unpacked Go modules

They go to TOOLS/schemas; the CRDs themselves, for a real API, to TOOLS/crds.
Strict: a field that the API does not know is an error, as with a server's field validation.
"""
import json
import pathlib
import sys

import yaml

# The CRDs are long, and the loader in C is twenty times faster.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
KINDS = {
    "ConfigMap", "Deployment", "HorizontalPodAutoscaler", "NetworkPolicy", "Pod", "PodDisruptionBudget", "Secret", "Service", "ServiceAccount",
    "StatefulSet",
}
CRDS = {
    "ServiceMonitor": "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
    "PrometheusRule": "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
    "ScaledObject": "config/crd/bases/keda.sh_scaledobjects.yaml",
    "Certificate": "deploy/crds/cert-manager.io_certificates.yaml",
    "GRPCRoute": "config/crd/standard/gateway.networking.k8s.io_grpcroutes.yaml",
    "HTTPRoute": "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
}
# Fields that the API accepts beyond its document.
LOOSE = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": ["string", "number"]},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["string", "integer"]},
}


def strict(schema):
    """Forbids unknown fields wherever fields are listed."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["string", "integer"]}
    out = {key: strict(value) for key, value in schema.items() if not key.startswith("x-kubernetes") and key not in ("format", "default")}
    if isinstance(out.get("properties"), dict) and "additionalProperties" not in out and not schema.get("x-kubernetes-preserve-unknown-fields"):
        out["additionalProperties"] = False
    return out


def resolve(definitions, name, depth=0):
    if name in LOOSE:
        return LOOSE[name]
    if depth > 24:
        raise SystemExit(f"{name} nests too deep: it holds itself, and our kinds do not")

    def walk(node):
        if isinstance(node, dict):
            if "$ref" in node:
                return resolve(definitions, node["$ref"].rsplit("/", 1)[1], depth + 1)
            return {key: walk(value) for key, value in node.items() if key != "description"}
        return [walk(one) for one in node] if isinstance(node, list) else node

    return walk(definitions[name])


def main():
    out, crds = pathlib.Path(sys.argv[1], "schemas"), pathlib.Path(sys.argv[1], "crds")
    kubernetes, operators = pathlib.Path(sys.argv[2]), [pathlib.Path(folder) for folder in sys.argv[3:]]
    for folder in (out, crds):
        folder.mkdir(parents=True, exist_ok=True)

    def write(kind, group, version, schema):
        # kubeconform's names: kind-group's first word-version
        suffix = "-".join(([group.split(".")[0]] if group else []) + [version])
        (out / f"{kind.lower()}-{suffix}.json").write_text(json.dumps(strict(schema)))

    definitions = json.loads((kubernetes / "api/openapi-spec/swagger.json").read_text())["definitions"]
    for name, definition in definitions.items():
        for gvk in definition.get("x-kubernetes-group-version-kind", []):
            if gvk["kind"] in KINDS and name.rsplit(".", 1)[1] == gvk["kind"]:
                schema = resolve(definitions, name)
                # The API requires these two; the document does not say so.
                schema["required"] = sorted(set(schema.get("required", [])) | {"apiVersion", "kind", "metadata"})
                write(gvk["kind"], gvk["group"], gvk["version"], schema)

    metadata = strict(resolve(definitions, "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"))
    for kind, path in CRDS.items():
        found = [folder / path for folder in operators if (folder / path).exists()]
        if len(found) != 1:
            raise SystemExit(f"no {path} in {operators}")
        (crds / f"{kind.lower()}.yaml").write_bytes(found[0].read_bytes())
        crd = next(one for one in yaml.load_all(found[0].read_text(), Loader=LOADER) if one)
        for version in crd["spec"]["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            schema["properties"]["metadata"] = metadata
            write(kind, crd["spec"]["group"], version["name"], schema)
    print(f"  {len(list(out.iterdir()))} schemas")


if __name__ == "__main__":
    main()
