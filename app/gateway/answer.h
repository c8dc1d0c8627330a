/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_ANSWER_H
#define GW_ANSWER_H

/**
 * @file
 * What goes back to the client of a call: the engine's answer, a choice, or an error.
 */

#include "call.h"

/** Add bytes. @return 0, or -ENOMEM. */
int gw_bytes_add(struct gw_bytes *b, const void *data, size_t len);

/**
 * One piece of the engine's answer. After the last one the caller tells of its end at once.
 * @return 0; -EBADMSG it is no HTTP response; -ENOBUFS the client reads too slowly; -ENOMEM.
 */
int gw_answer_add(struct gw_call *c, const struct kvr_client_item *it);

/** The engine's answer is complete. @return 0, or -EBADMSG as above. */
int gw_answer_end(struct gw_call *c);

/** The request is sent elsewhere while nothing has gone to the client: what has come of an answer
 * is kept, and the next one begins. */
void gw_answer_keep(struct gw_call *c);

/** Take what was kept for the answer. @return false: there is nothing. */
bool gw_answer_kept(struct gw_call *c);

/** How it went, for a client that has asked for it (NULL: it has not): a comment behind the last
 * event of a stream, else the field x-kvroute-timing of the head, while that is not out. */
void gw_answer_track(struct gw_call *c, const struct kvr_client_tracker *t);

/** The choice of a query. */
void gw_answer_choice(struct gw_call *c);

/**
 * Something failed: an error while nothing was sent, else an event that says so and the end of the
 * stream, or of the connection.
 */
void gw_answer_error(struct gw_call *c, const struct gw_error *e, const char *text);

/** An error for a request that is no call, or not any more: all of it, or by its name. */
void gw_answer_request_error(h2o_req_t *req, const struct gw_error *e, const char *text);
void gw_answer_plain_error(h2o_req_t *req, enum gw_fault fault, const char *text);

/** Whole answer of a page; @p type of its content. */
void gw_answer_page(h2o_req_t *req, int status, const char *type, const char *body, size_t len);

/** Release the buffers. */
void gw_answer_free(struct gw_call *c);

#endif
