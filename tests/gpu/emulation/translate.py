#!/usr/bin/env python3
"""Turns a .cu file into C++ for the emulation: translate.py IN.cu OUT.cc"""

import re
import sys

source = open(sys.argv[1], encoding="utf-8").read()
# kernel<<<grid, threads, shared, stream>>>(arguments);
source = re.sub(r"(\w[\w<>, ]*?|kernel)<<<(.*?)>>>\((.*?)\);",
                lambda m: f"emulation::Run({m[2]}, [&] {{ {m[1]}({m[3]}); }});", source, flags=re.S)
# Dynamic shared memory is one array per file; static shared memory is static: one block runs at a time.
names = re.findall(r"extern __shared__ __align__\(\d+\) unsigned char (\w+)\[\];", source)
source = re.sub(r"extern __shared__ __align__\(\d+\) unsigned char \w+\[\];\n", "", source)
source = source.replace("__shared__ ", "static ")
if names:
    source = source.replace("namespace {\n", f"namespace {{\n\nalignas(128) unsigned char {names[0]}[200 << 10];\n", 1)
open(sys.argv[2], "w", encoding="utf-8").write('#include "tests/gpu/emulation/fibers.h"\n' + source)
