/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_ANSWER_H
#define GW_ANSWER_H

/**
 * @file
 * Answers to the client of a call: the engine's answer, a choice, or an error.
 */

#include "call.h"

/** Append bytes. @return 0, or -ENOMEM. */
int gw_bytes_add(struct gw_bytes *b, const void *data, size_t len);

/**
 * Process a part of the engine's answer. After the last one the caller reports its end at once.
 * @return 0; -EBADMSG: not an HTTP response; -ENOBUFS: the client reads too slowly; -ENOMEM.
 */
int gw_answer_add(struct gw_call *call, const struct kvr_client_item *it);

/** The engine's answer is complete. @return 0, or -EBADMSG as above. */
int gw_answer_end(struct gw_call *call);

/** The request is retried before anything was sent to the client: keep the answer so far, and start
 * another. */
void gw_answer_keep(struct gw_call *call);

/** Use the kept answer. @return false: there is none. */
bool gw_answer_kept(struct gw_call *call);

/** Add timing for a client that requested it (NULL: not requested): a comment after the last event
 * of a stream, otherwise the field x-kvroute-timing, if the head was not sent yet. */
void gw_answer_track(struct gw_call *call, const struct kvr_client_tracker *t);

/** Answer a query with its choice. */
void gw_answer_choice(struct gw_call *call);

/**
 * Answer with an error: as a response if nothing was sent, otherwise as an event followed by the
 * end of the stream, or by closing the connection.
 */
void gw_answer_error(struct gw_call *call, const struct gw_error *e, const char *text);

/** Error for a request without a call, or whose call has ended: in full, or by name. */
void gw_answer_request_error(h2o_req_t *req, const struct gw_error *e, const char *text);
void gw_answer_plain_error(h2o_req_t *req, enum gw_fault fault, const char *text);

/** Complete answer of a page; @p type is the content type. */
void gw_answer_page(h2o_req_t *req, int status, const char *type, const char *body, size_t len);

/** Free the buffers. */
void gw_answer_free(struct gw_call *call);

#endif
