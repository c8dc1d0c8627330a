/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SIM_FAILING_H
#define KVR_SIM_FAILING_H

#include <stdint.h>

struct engine;
struct execution;

/** The engine fails all requests until the given time. */
void failing_begin(struct engine *e, uint64_t until_ns);
/** An execution begins: fail it if its engine is failing, and check that it may be here. */
void failing_dispatch(struct engine *e, struct execution *r);

#endif
