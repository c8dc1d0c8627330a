/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_STREAMS_H
#define GW_STREAMS_H

/**
 * @file
 * HTTP/2 requests whose fields have arrived and whose body has not: libh2o waits for a body while
 * its client sends anything. Also operations on single streams. Only the thread of the connection
 * uses them.
 */

#include "gateway.h"

/** The fields of a request have arrived. */
void gw_stream_comes(h2o_req_t *req);

/** Bytes of the answer that libh2o holds because the client's window is closed. */
size_t gw_stream_left(h2o_req_t *req);

/** Reset a stream; other streams of the connection continue. Disposes of the request, unless libh2o
 * does so shortly afterwards. */
void gw_stream_reset(h2o_req_t *req);

/** Answer 408 to requests whose body is not complete within --header-ms, and grows slower than
 * GW_SLOWEST. Call in every turn. */
void gw_streams_turn(struct gw_thread *thread);

#endif
