/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_BUFFERS_H
#define GW_BUFFERS_H

/**
 * @file
 * Memory of what libh2o has read. It bounds one body (--max-body), not all that come in: clients
 * that begin many bodies and end none, or one over HTTP/2 with a stream for each, would fill the
 * machine, and gw_budget_take() sees a request when its body is there. Every buffer of libh2o grows
 * in h2o_buffer_reserve() and ends in h2o_buffer__do_free(), which it calls as any shared library
 * calls another: buffers.c takes these names, counts what they do, and lets a buffer of input grow
 * no more when there is too much. libh2o then closes the connection, or the stream. Counted by
 * thread: a buffer stays with the loop that made it.
 *
 * Large ones are also counted for the address they come from, so that one address cannot have all
 * of it. libh2o does not tell which connection a buffer belongs to, but makes room in the input of
 * a connection before it reads there, and copies from there to the bodies of its streams.
 */

#include <h2o.h>
#include <stdint.h>

#include "stats.h"

struct gw_source;
struct gw_sources;

/**
 * This thread's buffers of input may have @p most bytes, those up to 64 KiB are let grow in any
 * case; @p share of them is shared by addresses (source.h), the rest is for those that have one
 * buffer. Refusals are counted as GW_BODIES_CUT in @p row.
 */
void gw_buffers_limit(struct gw_sources *sources, uint64_t share, uint64_t most, kvr_cell_t *row);

/** Called before something is read from a connection. */
typedef void gw_buffers_fn(void *arg);

/** A connection of @p source has its input at @p input (h2o_socket_t). @return 0, -ENOMEM. */
int gw_buffers_open(h2o_buffer_t **input, struct gw_source *source, gw_buffers_fn *fn, void *arg);

/** It is closed; @p input is not looked at. */
void gw_buffers_close(h2o_buffer_t **input);

#endif
