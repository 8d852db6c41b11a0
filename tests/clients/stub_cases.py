"""Cases of stubs: each language makes them and can use them."""
import pathlib

import languages
from cases import Cases, OK, case, elsewhere
from relay import ROOT


class Stubs(Cases):
    def protoc(self, *arguments, folder, cwd=ROOT):
        languages.need("protoc")
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        return languages.run("protoc", "-I", ROOT / "proto", *arguments, cwd=cwd)

    @case(1, ("go",), "the README's line of protoc, `import \"baton.example/go/baton/v1\"`", "compiles")
    def test_001(self):
        self.stubs_compile()

    @case(2, ("go",), "`--go_opt=module=baton.example/go`", "files in the module")
    def test_002(self):
        self.stubs_compile()
        self.assertTrue((languages.COPY / "clients/go/baton/v1/inference_grpc.pb.go").exists())

    def stubs_compile(self):
        with self.program() as program:
            self.assertEqual(program.ask("ListModels").code, OK)

    @case(3, ("go",), "an `M` option for each file, to a path of one's own", "compiles")
    def test_003(self):
        with self.program():  # the module is built
            folder = languages.COPY / "clients/go/own"
            mapped = [f"M{name}=baton.example/go/own/v1" for name in self.public()]
            options = [f"--{kind}_opt={option}" for kind in ("go", "go-grpc") for option in ["module=baton.example/go/own", *mapped]]
            self.protoc(f"--go_out={folder}", f"--go-grpc_out={folder}", *options, *self.public(), folder=folder)
            languages.run("go", "build", "./own/...", cwd=folder.parent)

    @staticmethod
    def public():
        return [f"baton/v1/{name}.proto" for name in ("errors", "generation", "inference")]

    @case(4, ("java",), "`import io.grpc.*; import example.baton.v1.*;` and io.grpc's `Status`", "compiles")
    def test_004(self):
        self.compile_java("import io.grpc.*; import example.baton.v1.*; class Wild { Status status = Status.OK; ChatRequest request; }")

    @case(5, ("java",), "explicit imports; what routers and workers speak is not among the classes", "compiles; 0 of `Decode`, `Prefill`, `Worker`")
    def test_005(self):
        self.compile_java("import io.grpc.Status; import example.baton.v1.Message; class Wild { Status status = Status.OK; Message message; }")
        made = {path.stem for path in (languages.COPY / "clients/java/target/generated-sources").rglob("*.java")}
        self.assertIn("InferenceGrpc", made)
        self.assertFalse({name for name in made if name.startswith(("Decode", "Prefill", "Worker", "KvChunk"))} - {"DetokenizeRequest"})

    def compile_java(self, source):
        with self.program():  # the client is built
            command = languages.build("java")["plain"]
            folder = languages.COPY / "wild"
            folder.mkdir(exist_ok=True)
            (folder / "Wild.java").write_text(source)
            languages.run("javac", "-cp", command[2], "-d", folder, folder / "Wild.java")

    @case(6, ("typescript",), "proto-loader, with and without keepCase", "loads, and calls work")
    def test_006(self):
        with self.program():
            folder = self.node_packages("@grpc/proto-loader")
            script = """
import grpc from "@grpc/grpc-js"; import loader from "@grpc/proto-loader";
for (const keepCase of [false, true]) {
  const loaded = loader.loadSync("baton/v1/inference.proto", { includeDirs: [process.argv[2]], keepCase, longs: Number });
  const client = new (grpc.loadPackageDefinition(loaded).baton.v1.Inference)(process.argv[3], grpc.credentials.createInsecure());
  const stop = keepCase ? { max_tokens: 4, ignore_eos: true } : { maxTokens: 4, ignoreEos: true };
  for await (const message of client.generate({ text: "Once", stop })) {
    if (message.started) console.log(Number.isSafeInteger(message.started.seed));
    if (message.finished) console.log((message.finished.usage.completionTokens ?? message.finished.usage.completion_tokens));
  }
}
process.exit(0);
"""
            (folder / "loader.mjs").write_text(script)
            self.assertEqual(languages.run("node", "loader.mjs", ROOT / "proto", self.shared.address, cwd=folder).split(), ["true", "4"] * 2)

    @case(7, ("typescript",), "ts-proto with its defaults, whose numbers are doubles", "calls work: seeds that routers draw are below 2^53")
    def test_007(self):
        with self.program():
            folder = self.node_packages("ts-proto@2", "typescript@5")
            (folder / "src").mkdir(exist_ok=True)
            self.protoc(f"--plugin={folder}/node_modules/.bin/protoc-gen-ts_proto", f"--ts_proto_out={folder}/src", "--ts_proto_opt=outputServices=grpc-js,esModuleInterop=true", *self.public(), folder=folder)
            script = """
import * as grpc from "@grpc/grpc-js"; import { InferenceClient, GenerateRequest } from "./baton/v1/inference";
const client = new InferenceClient(process.argv[2]!, grpc.credentials.createInsecure());
const call = client.generate(GenerateRequest.fromPartial({ text: "Once", stop: { maxTokens: 4, ignoreEos: true } }));
call.on("data", (message) => { if (message.finished) console.log(message.finished.usage.completionTokens); });
call.on("end", () => process.exit(0));
"""
            (folder / "src/main.ts").write_text(script)
            options = ["--target", "es2022", "--module", "commonjs", "--moduleResolution", "node10", "--esModuleInterop", "--skipLibCheck", "--outDir", "made"]
            languages.run("node", "node_modules/typescript/bin/tsc", *options, "src/main.ts", cwd=folder)
            (folder / "made/package.json").write_text('{"type": "commonjs"}')
            for _ in range(10):  # each draws a seed
                self.assertEqual(languages.run("node", "made/main.js", self.shared.address, cwd=folder).strip(), "4")

    def node_packages(self, *names):
        folder = languages.COPY / "node" / names[0].split("/")[-1]
        if not folder.exists():
            folder.mkdir(parents=True)
            (folder / "package.json").write_text('{"private": true}')
            languages.run("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "@grpc/grpc-js", "@types/node@20", "@bufbuild/protobuf@2", *names, cwd=folder)
        return folder

    @case(8, ("rust",), "tonic-prost-build on the public protos", "compiles, and calls work")
    def test_008(self):
        self.stubs_compile()

    @case(9, ("python",), "grpc_tools on all of `proto/`, beside grpcio-health-checking and googleapis-common-protos in one process", "no clash")
    def test_009(self):
        folder = languages.COPY / "every"
        folder.mkdir(exist_ok=True)
        names = [str(path.relative_to(ROOT / "proto")) for path in sorted((ROOT / "proto").rglob("*.proto"))]
        languages.run(languages.PYTHON, "-m", "grpc_tools.protoc", f"-I{ROOT / 'proto'}", f"--python_out={folder}", f"--grpc_python_out={folder}", *names)
        packages = languages.COPY / "health"
        languages.run(languages.PYTHON, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--target", packages, "grpcio-health-checking==1.76.0")
        script = "from google.rpc import status_pb2, error_details_pb2; from grpc_health.v1 import health_pb2; from baton.v1 import inference_pb2_grpc, errors_pb2; print('well')"
        self.assertEqual(languages.run("env", f"PYTHONPATH={packages}:{folder}", languages.PYTHON, "-c", script).strip(), "well")

    @case(10, ("protoc",), "`protoc --X_out` of the public files for C#, Ruby, PHP, Objective-C, Kotlin and Java: their messages", "no error")
    def test_010(self):
        for kind in ("csharp", "ruby", "php", "objc", "kotlin", "java"):
            folder = languages.COPY / "protoc" / kind
            self.protoc(f"--{kind}_out={folder}", *self.public(), folder=folder)
            self.assertTrue([path for path in folder.rglob("*") if path.is_file()], kind)

    elsewhere(11, ("buf",), "`buf build`, `buf format -d`", "clean", "`scripts/check-protos`, in the gate")
    elsewhere(12, ("buf",), "`buf lint` STANDARD and COMMENTS", "clean, but for what `proto/buf.yaml` names", "`scripts/check-protos`, in the gate")
    elsewhere(13, ("buf",), "`buf breaking` against the last landed state", "clean", "`scripts/check-protos`, in the gate")
