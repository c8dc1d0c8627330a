/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_CONN_H
#define GW_CONN_H

/**
 * @file
 * What a client does with its connection and libh2o does not see: with HTTP/1 that it closes its
 * side while a request is under way or before one is read, with HTTP/2 that it resets requests as
 * fast as it opens them, or never takes an answer. `by_fd` of a thread has a place for each
 * descriptor; the thread alone uses it.
 *
 * And how long it takes. libh2o has one clock for a connection of HTTP/1, which begins with the end
 * of the answer before: a request that comes late in it would be cut off while it comes in. Here
 * each request has its time from its first byte on, and the same again whenever it has grown as
 * GW_SLOWEST says, and the pause between two has another one; libh2o's clock is set to what both
 * together never are.
 */

#include "call.h"

/**
 * A connection was accepted: where from is all that is known of it yet.
 * @return false: it gets 429, as its address has its share, or nothing for want of memory. The
 * caller closes it.
 * @param input where libh2o keeps what it reads of it (buffers.h).
 */
bool gw_conn_open(struct gw_thread *t, int fd, h2o_buffer_t **input);

/** It is closed. */
void gw_conn_close(struct gw_thread *t, int fd);

/** May its address ask, too? @return 0, or seconds until it may. */
uint32_t gw_conn_ask(struct gw_thread *t, const h2o_req_t *req);

/** The client has closed its side. @return the request that is under way there, or NULL. */
struct gw_call *gw_conn_half_closed(struct gw_thread *t, int fd);

/** A request begins on its connection: sets `fd` and `source`. */
void gw_conn_enter(struct gw_call *c);

/**
 * It ends there. When it was not answered, the client has reset it; a client that does so more
 * often in a second than twice what it may have open at once loses its HTTP/2 connection.
 */
void gw_conn_leave(struct gw_call *c);

/** HTTP/1: a request has come in; its connection is idle again when libh2o lets go of it. */
void gw_conn_runs(struct gw_thread *t, h2o_req_t *req);

/** Milliseconds: longer than from the end of an answer to the next request. */
uint64_t gw_conn_longest(const struct gw_options *o);

/**
 * Answer 408 to requests of HTTP/1 that do not come in fast enough, and end their connections,
 * those that have said nothing for as long since they are there, and those that are idle for
 * --idle-ms. To be called in every turn.
 */
void gw_conn_turn(struct gw_thread *t);

/** Another one wants to be served: close the one of HTTP/1 that has been idle for longest. @return
 * false: there is none. */
bool gw_conn_make_room(struct gw_thread *t);

/** Is a part of a request there, and the rest to come? */
bool gw_conn_comes(const struct gw_thread *t);

/**
 * The thread ends, others may go on for long: close its connections, or their clients would wait
 * for what nobody reads. A request of HTTP/1 that is not there in whole is answered 503.
 */
void gw_conns_end(struct gw_thread *t);

/** HTTP/1: was the client's side closed before the request began? */
bool gw_conn_is_half_closed(const struct gw_call *c);

/** HTTP/2: has the client reset so many requests that its connection is being closed? */
bool gw_conn_floods(const struct gw_call *c);

/**
 * Reset the HTTP/2 streams of which the client has taken nothing for --idle-ms: their windows are
 * its own, and TCP sees nothing wrong. To be called in every turn.
 */
void gw_conn_stalled(struct gw_thread *t);

#endif
