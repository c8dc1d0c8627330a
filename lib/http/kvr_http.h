/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_HTTP_H
#define KVR_HTTP_H

/**
 * @file
 * HTTP/1.1 messages as they travel inside a request: the body of a ROUTE to an engine that speaks
 * HTTP is a request message, the items of its answer are a response message (PROTOCOL.md, section
 * 18). A head (first line, fields, empty line), and behind it the body to the end; no transfer
 * coding, no Content-Length: the frames say where it ends.
 *
 * Heads are bounded, parsed in place into spans and written into the caller's memory; nothing is
 * allocated; any thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVR_HTTP_MAX_HEAD   16384u /**< bytes, with the empty line */
#define KVR_HTTP_MAX_FIELDS 64u

/** Bytes of the head; no terminator. */
struct kvr_http_span {
	const char *p;
	uint32_t len;
};

struct kvr_http_field {
	struct kvr_http_span name, value;
};

/** A parsed head: valid as long as the message it lies in. */
struct kvr_http_head {
	struct kvr_http_span method, target; /**< of a request */
	uint16_t status;		     /**< of a response, 100..999 */
	uint16_t n_fields;
	uint32_t len; /**< of the head: the body starts there */
	struct kvr_http_field fields[KVR_HTTP_MAX_FIELDS];
};

/**
 * Parse the head at the start of a request message of @p len bytes.
 * @return 0; -EAGAIN the head does not end in here and may go on; -EBADMSG no such head, or one
 * with a field of the connection (kvr_http_is_hop()); -E2BIG above the bounds.
 */
int kvr_http_parse_request(const void *data, size_t len, struct kvr_http_head *head);

/** The same of a response message. @return as kvr_http_parse_request(). */
int kvr_http_parse_response(const void *data, size_t len, struct kvr_http_head *head);

/** The first field called @p name, in any case; NULL: there is none. */
const struct kvr_http_field *kvr_http_find(const struct kvr_http_head *head, const char *name);

/** Is the span @p text, case ignored? */
bool kvr_http_equals(struct kvr_http_span s, const char *text);

/**
 * Does a field belong to one connection, so that it must not be handed on? Connection,
 * Content-Length, Host, Keep-Alive, Proxy-..., TE, Trailer, Transfer-Encoding, Upgrade, Expect.
 */
bool kvr_http_is_hop(const char *name, size_t len);

/** Writing a head; fields are private. */
struct kvr_http_put {
	char *buf;
	size_t size, len;
	int err;
};

/** Begin a request's head in @p buf. Method and target are checked by kvr_http_put_end(). */
void kvr_http_put_request(struct kvr_http_put *w, void *buf, size_t size, const char *method,
			  const char *target);

/** Begin a response's head; @p status is 100..999. */
void kvr_http_put_response(struct kvr_http_put *w, void *buf, size_t size, unsigned int status);

/** Add a field. Bytes that would end it early are refused, by kvr_http_put_end(). */
void kvr_http_put_field(struct kvr_http_put *w, const char *name, size_t name_len,
			const char *value, size_t value_len);

/** The same with strings. */
void kvr_http_put_text(struct kvr_http_put *w, const char *name, const char *value);

/**
 * End the head.
 * @return its length; -ENOSPC it does not fit, or is above KVR_HTTP_MAX_HEAD; -EINVAL something
 * cannot stand in a head, or is a field of the connection.
 */
int kvr_http_put_end(struct kvr_http_put *w);

/** The usual words for a status; "" for one that has none. */
const char *kvr_http_reason(unsigned int status);

#endif
