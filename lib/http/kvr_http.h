/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_HTTP_H
#define KVR_HTTP_H

/**
 * @file
 * HTTP/1.1 messages inside requests: the body of a ROUTE to an HTTP engine is a request message,
 * and the items of its answer form a response message (PROTOCOL.md, section 18). A message is a
 * head (first line, fields, empty line) followed by the body, without transfer coding and without
 * Content-Length: the frames delimit it.
 *
 * Heads are bounded, parsed in place into spans, and written into the caller's memory. Nothing is
 * allocated; any thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVR_HTTP_MAX_HEAD   16384u /**< bytes, including the empty line */
#define KVR_HTTP_MAX_FIELDS 64u

/** Bytes of the head, without terminator. */
struct kvr_http_span {
	const char *p;
	uint32_t len;
};

struct kvr_http_field {
	struct kvr_http_span name, value;
};

/** A parsed head, valid as long as its message. */
struct kvr_http_head {
	struct kvr_http_span method, target; /**< of a request */
	uint16_t status;		     /**< of a response, 100..999 */
	uint16_t n_fields;
	uint32_t len; /**< bytes of the head; the body starts there */
	struct kvr_http_field fields[KVR_HTTP_MAX_FIELDS];
};

/**
 * Parse the head at the start of a request message of @p len bytes.
 * @return 0; -EAGAIN the head is incomplete; -EBADMSG malformed, or with a hop-by-hop field
 * (kvr_http_is_hop()); -E2BIG above the limits.
 */
int kvr_http_parse_request(const void *data, size_t len, struct kvr_http_head *head);

/** The same of a response message. @return as kvr_http_parse_request(). */
int kvr_http_parse_response(const void *data, size_t len, struct kvr_http_head *head);

/** First field called @p name, case ignored; NULL if there is none. */
const struct kvr_http_field *kvr_http_find(const struct kvr_http_head *head, const char *name);

/** True if the span equals @p text, case ignored. */
bool kvr_http_equals(struct kvr_http_span s, const char *text);

/**
 * True for a hop-by-hop field, which must not be forwarded: Connection, Content-Length, Host,
 * Keep-Alive, Proxy-..., TE, Trailer, Transfer-Encoding, Upgrade, Expect, HTTP2-Settings.
 */
bool kvr_http_is_hop(const char *name, size_t len);

/** State of a head that is being written; fields are private. */
struct kvr_http_put {
	char *buf;
	size_t size, len;
	int err;
};

/**
 * Begin the head of a request in @p buf. kvr_http_put_end() reports an invalid method or target.
 */
void kvr_http_put_request(struct kvr_http_put *head, void *buf, size_t size, const char *method,
			  const char *target);

/** Begin the head of a response; @p status is 100..999. */
void kvr_http_put_response(struct kvr_http_put *head, void *buf, size_t size, unsigned int status);

/** Add a field. kvr_http_put_end() reports bytes that are not allowed in it. */
void kvr_http_put_field(struct kvr_http_put *head, const char *name, size_t name_len,
			const char *value, size_t value_len);

/** The same with strings. */
void kvr_http_put_text(struct kvr_http_put *head, const char *name, const char *value);

/**
 * End the head.
 * @return its length; -ENOSPC too long for the buffer or above KVR_HTTP_MAX_HEAD; -EINVAL invalid
 * bytes, or a hop-by-hop field.
 */
int kvr_http_put_end(struct kvr_http_put *head);

/** Reason phrase of a status; "" if unknown. */
const char *kvr_http_reason(unsigned int status);

#endif
