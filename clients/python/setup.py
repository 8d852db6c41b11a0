"""Makes the stubs of proto/baton/v1 while the package is built, so that they are never older than the protocol."""
import pathlib

from setuptools import setup
from setuptools.command.build_py import build_py

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"


class BuildWithStubs(build_py):
    def run(self):
        from grpc_tools import protoc

        super().run()
        files = sorted(str(path.relative_to(PROTO)) for path in (PROTO / "baton/v1").glob("*.proto"))
        if not files:
            raise SystemExit(f"there are no protocol files in {PROTO}: build the package inside Baton's repository")
        # google/protobuf comes with grpcio-tools.
        import grpc_tools

        well_known = pathlib.Path(grpc_tools.__file__).parent / "_proto"
        out = self.build_lib
        code = protoc.main(["protoc", f"-I{PROTO}", f"-I{well_known}", f"--python_out={out}", f"--pyi_out={out}", f"--grpc_python_out={out}", *files])
        if code != 0:
            raise SystemExit("protoc could not make the stubs")


setup(cmdclass={"build_py": BuildWithStubs})
