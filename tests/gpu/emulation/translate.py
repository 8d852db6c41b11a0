#!/usr/bin/env python3
"""Turns a .cu file into C++ for the emulation: translate.py IN.cu OUT.cc"""

import re
import sys

source = open(sys.argv[1], encoding="utf-8").read()
# Dynamic shared memory is one array per file; static shared memory is static: one block runs at a time.
dynamic = re.findall(r"extern __shared__ __align__\((\d+)\) unsigned char (\w+)\[\];", source)
memory = dynamic[0][1] if dynamic else "nullptr"
# kernel<<<grid, threads, shared, stream>>>(arguments); the arguments are copied, as a launch does.
source = re.sub(r"(\w[\w<>, ]*?|kernel)<<<(.*?)>>>\((.*?)\);",
                lambda m: f"emulation::Run({memory}, {m[2]}, [=] {{ {m[1]}({m[3]}); }});", source, flags=re.S)
source = re.sub(r"extern __shared__ __align__\(\d+\) unsigned char \w+\[\];\n", "", source)
source = source.replace("__shared__ ", "static ")
if dynamic:
    alignment = max(int(alignment) for alignment, _ in dynamic)
    source = source.replace("namespace {\n",
                            f"namespace {{\n\nalignas({alignment}) unsigned char {memory}[227 << 10];\n", 1)
open(sys.argv[2], "w", encoding="utf-8").write('#include "tests/gpu/emulation/fibers.h"\n' + source)
