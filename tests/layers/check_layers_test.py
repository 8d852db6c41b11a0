"""check-layers passes on the tree, and fails on each kind of violation planted in a copy of it."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TREES = ["common", "text", "protocol", "engine", "router", "transfer", "worker", "prefill_service", "decode_service", "cli", "lab"]

# (file, its line, what the message must say)
PLANTED = [
    ("common/base/planted.h", '#include "common/tensor/dtype.h"', "common/tensor is above it"),
    ("common/tensor/planted.h", '#include "common/telemetry/metrics.h"', "of the same level"),
    ("engine/kv/index/planted.h", '#include "engine/kv/store/kv_store.h"', "engine/kv/store is above it"),
    ("engine/sampling/planted.h", '#include "engine/model/decoder.h"', "of the same level"),
    ("engine/model/planted.cc", '#include "engine/engine.h"', "engine is above it"),
    ("transfer/planted.cc", '#include "prefill_service/scheduler.h"', "prefill_service is above it"),
    ("decode_service/planted.cc", '#include "prefill_service/scheduler.h"', "prefill_service is of the same level"),
    ("prefill_service/planted.cc", '#include "decode_service/scheduler.h"', "decode_service is of the same level"),
    ("decode_service/planted.cc", '#include "router/router.h"', "router is above it"),
    ("router/planted.cc", '#include "decode_service/scheduler.h"', "router must not reach decode_service"),
    ("router/api/planted.cc", '#include "prefill_service/scheduler.h"', "router must not reach prefill_service"),
    ("router/admission/planted.h", '#include "router/index/prefix_index.h"', "router/index is of the same level"),
    ("router/fleet/planted.h", '#include "router/dispatch/dispatcher.h"', "router/dispatch is above it"),
    ("router/tenancy/planted.h", '#include "router/api/service.h"', "router/api is above it"),
    ("router/api/planted.h", '#include "router/router.h"', "router is above it"),
    ("router/placement/planted.h", "#include <grpcpp/grpcpp.h>", "must not see gRPC or wire types"),
    ("router/tenancy/planted.h", "#include <grpcpp/server_context.h>", "must not see gRPC or wire types"),
    ("router/dispatch/planted.cc", '#include "engine/engine.h"', "router must not reach engine"),
    ("router/attic/planted.h", "#include <vector>", "is in no room"),
    ("router/planted.h", '#include "router/attic/planted.h"', "is in no room"),
    ("engine/planted.cc", '#include "baton/fleet/v1/handoff.pb.h"', "must not see gRPC or wire types"),
    ("gateway/planted.cc", '#include "baton/fleet/v1/decode.pb.h"', "must not see the wire between routers and workers"),
    ("engine/kernels/planted.cc", "#include <grpcpp/grpcpp.h>", "must not see gRPC or wire types"),
    ("engine/sampling/planted.cc", "# include <google/protobuf/message.h>", "must not see gRPC or wire types"),
    ("engine/planted.cc", '#include "transfer/link.h"', "must not reach transfer"),
    ("router/planted.cc", '#include "engine/engine.h"', "router must not reach engine"),
    ("router/planted.cc", '#include "worker/flags.h"', "router must not reach engine"),
    ("router/planted.cc", '#include "engine/model/decoder.h"', "router must not reach engine/kernels"),
    ("engine/kv/index/planted.cc", '#include "fmt/format.h"', "write <fmt/format.h>, in angle brackets"),
    ("engine/kv/index/planted.cc", '#include "block_pool.h"', "with its path from the root"),
    ("engine/kv/index/planted.cc", '#include "common/json/strict_json.h"', "no target of its CMakeLists.txt links baton::json"),
    ("router/api/planted.h", "  const Clock* const clock_;", "what null means"),
    ("common/attic/planted.h", "#include <vector>", "is in no room"),
    ("common/base/planted.cc", '#include "common/attic/planted.h"', "is in no room"),
    ("tests/fakes/planted.h", '#include "tests/e2e/fleet.h"', "above it or beside it"),
    ("tests/unit/text/planted.cc", '#include "tests/unit/engine/draw_check.h"', "engine is above it or beside it"),
    ("tests/unit/engine/planted.cc", '#include "router/router.h"', "is above it"),
    ("tests/attic/planted.h", "#include <vector>", "give tests/attic a level"),
    ("tests/unit/attic/planted.h", "#include <vector>", "is of no folder of the root"),
]


def run(root):
    return subprocess.run([sys.executable, ROOT / "scripts" / "check-layers", "--root", root], capture_output=True,
                          text=True, check=False)


class CheckLayersTest(unittest.TestCase):
    def test_the_tree_is_clean(self):
        result = run(ROOT)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(result.stdout, "")

    def test_an_empty_tree_is_not_taken_for_a_clean_one(self):
        with tempfile.TemporaryDirectory() as empty:
            self.assertEqual(run(empty).returncode, 1)

    def test_planted_violations_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder)
            for tree in TREES:
                if (ROOT / tree).is_dir():
                    shutil.copytree(ROOT / tree, copy / tree)
            # The rooms that lead from the router to the engine, whatever the tree has at present.
            (copy / "worker").mkdir(exist_ok=True)
            (copy / "worker/leads_on.h").write_text('#include "engine/engine.h"\n')
            (copy / "engine/model/leads_on.h").write_text('#include "engine/kernels/kernels.h"\n')
            self.assertEqual(run(copy).stdout, "")
            for name, line, message in PLANTED:
                with self.subTest(file=name, line=line):
                    planted = copy / name
                    planted.parent.mkdir(parents=True, exist_ok=True)
                    planted.write_text(f"#pragma once\n{line}\n")
                    result = run(copy)
                    self.assertEqual(result.returncode, 1)
                    self.assertIn(f"{name}:", result.stdout)
                    self.assertIn(message, result.stdout)
                    planted.unlink()
            self.assertEqual(run(copy).stdout, "")


if __name__ == "__main__":
    unittest.main()
