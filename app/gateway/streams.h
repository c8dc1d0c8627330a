/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_STREAMS_H
#define GW_STREAMS_H

/**
 * @file
 * Requests of HTTP/2 whose fields are there and whose body is not: libh2o waits for a body as long
 * as its client says anything. And what is done to one stream alone. The thread that has the
 * connection alone uses them.
 */

#include "gateway.h"

/** The fields of a request have come. */
void gw_stream_comes(h2o_req_t *req);

/** Bytes of the answer that libh2o has been given and whose client has no window for them. */
size_t gw_stream_left(h2o_req_t *req);

/** End it: the client is told, the others of its connection go on. Disposes of the request, unless
 * libh2o does so a little later. */
void gw_stream_reset(h2o_req_t *req);

/** Answer 408 to those whose body is not there in --header-ms, nor has grown as GW_SLOWEST says. To
 * be called in every turn. */
void gw_streams_turn(struct gw_thread *t);

#endif
