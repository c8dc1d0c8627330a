/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_BUFFERS_H
#define GW_BUFFERS_H

/**
 * @file
 * Memory of what libh2o has read. It bounds one body (--max-body), not all that come in: clients
 * that begin many bodies and end none, or one over HTTP/2 with a stream for each, would fill the
 * machine, and gw_call_holds() sees a request when its body is there. Every buffer of libh2o grows
 * in h2o_buffer_reserve() and ends in h2o_buffer__do_free(), which it calls as any shared library
 * calls another: buffers.c takes these names, counts what they do, and lets a buffer of input grow
 * no more when there is too much. libh2o then closes the connection, or the stream. Counted by
 * thread: a buffer stays with the loop that made it.
 */

#include <stdint.h>

#include "stats.h"

/** This thread's buffers of input may have so many bytes, those up to 64 KiB not counted against
 * anybody; refusals are counted as GW_BODIES_CUT in @p row. */
void gw_buffers_limit(uint64_t bytes, kvr_cell_t *row);

#endif
