/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_FUZZ_H
#define KVR_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/** The entry of libFuzzer; replay.c calls it with the committed inputs. Always returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
