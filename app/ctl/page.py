#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A file as a C header with one array: page.py FILE HEADER."""
import sys

with open(sys.argv[1], "rb") as f:
    data = f.read()
with open(sys.argv[2], "w") as out:
    out.write("static const char page_text[] = {")
    out.write(",".join(str(b if b < 128 else b - 256) for b in data + b"\0"))
    out.write("};\n")
