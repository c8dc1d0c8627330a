/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_CONN_H
#define GW_CONN_H

/**
 * @file
 * Events of client connections that libh2o does not report. HTTP/1: the client closes its side
 * while a request runs, or before it is read. HTTP/2: the client resets requests as fast as it
 * opens them, or never reads an answer. `by_fd` of a thread has a place for each descriptor, used
 * by this thread only.
 *
 * Time limits: libh2o has one clock per HTTP/1 connection, which starts at the end of the previous
 * answer, so a request that arrives late in this interval would be cut off. Here each request has
 * --header-ms from its first byte, and the same again whenever it has grown at the rate GW_SLOWEST,
 * and the pause between two requests has its own limit. libh2o's clock is set above the sum of
 * both.
 */

#include "call.h"

/**
 * Register an accepted connection; only its address is known yet.
 * @return false: it got 429, because its address reached its limit, or nothing for lack of memory.
 * The caller closes it.
 * @param input where libh2o keeps its input (buffers.h).
 */
bool gw_conn_open(struct gw_thread *thread, int fd, h2o_buffer_t **input);

/** The connection was closed. */
void gw_conn_close(struct gw_thread *thread, int fd);

/** Check the request rate of its address. @return 0, or seconds to wait. */
uint32_t gw_conn_ask(struct gw_thread *thread, const h2o_req_t *req);

/** The client closed its side. @return the running request, or NULL. */
struct gw_call *gw_conn_half_closed(struct gw_thread *thread, int fd);

/** A request starts on its connection: sets `fd` and `source`. */
void gw_conn_enter(struct gw_call *call);

/**
 * A request ends. If it was not answered, the client reset it. A client that does so within a
 * second more often than twice its stream limit loses its HTTP/2 connection.
 */
void gw_conn_leave(struct gw_call *call);

/** HTTP/1: a request was read; the connection is idle again when libh2o releases the request. */
void gw_conn_runs(struct gw_thread *thread, h2o_req_t *req);

/** Milliseconds: above the time from the end of an answer to the next request. */
uint64_t gw_conn_longest(const struct gw_options *options);

/**
 * Answer 408 to HTTP/1 requests that arrive too slowly, and close their connections, connections
 * without a request since accept, and those idle for --idle-ms. Call in every turn.
 */
void gw_conn_turn(struct gw_thread *thread);

/** Make room for another connection: close the HTTP/1 connection that has been idle for longest.
 * @return false: none is idle. */
bool gw_conn_make_room(struct gw_thread *thread);

/** Return true if a request was received in part. */
bool gw_conn_comes(const struct gw_thread *thread);

/**
 * The thread ends before others: close its connections, because their clients would wait. An
 * incomplete HTTP/1 request is answered 503.
 */
void gw_conns_end(struct gw_thread *thread);

/** HTTP/1: return true if the client's side was closed before the request started. */
bool gw_conn_is_half_closed(const struct gw_call *call);

/** HTTP/2: return true if the connection is being closed because of resets. */
bool gw_conn_floods(const struct gw_call *call);

/**
 * Reset HTTP/2 streams whose client has read nothing for --idle-ms; TCP cannot detect this. Call in
 * every turn.
 */
void gw_conn_stalled(struct gw_thread *thread);

#endif
