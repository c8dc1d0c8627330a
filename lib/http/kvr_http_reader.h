/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_HTTP_READER_H
#define KVR_HTTP_READER_H

/**
 * @file
 * Reader of one response of a connection in the framing of HTTP/1.0 and HTTP/1.1 (RFC 9112, section
 * 6): the head, and the content without its coding: by length, in chunks, or until the connection
 * ends. Informational responses (1xx) and trailers are skipped. The result does not depend on how
 * the bytes are split. An incomplete head is buffered, at most KVR_HTTP_MAX_HEAD bytes; content is
 * not. One thread; linear time.
 */

#include "kvr_http.h"

/** Callbacks. */
struct kvr_http_reader_ops {
	/**
	 * The head, once, before any content. @p h is valid during the call and includes hop-by-hop
	 * fields. @return 0, or a negative number that ends reading.
	 */
	int (*head)(void *arg, const struct kvr_http_head *h);
	/** Next bytes of the content. @return as head(). */
	int (*content)(void *arg, const char *data, size_t len);
};

/** State of one response; fields are private. */
struct kvr_http_reader {
	const struct kvr_http_reader_ops *ops;
	void *arg;
	uint64_t parser[4];
	char *held; /* buffered head, KVR_HTTP_MAX_HEAD bytes, or NULL */
	uint32_t held_len;
	int err;
	bool bare;	/* response to HEAD: no content, whatever the head says */
	bool head_done; /* content follows */
	bool whole, keep, surplus;
};

/**
 * Begin with the response to one request; @p is_head: the method of the request was HEAD. The
 * reader must not move until kvr_http_reader_fini().
 */
void kvr_http_reader_init(struct kvr_http_reader *reader, const struct kvr_http_reader_ops *ops,
			  void *arg, bool is_head);

/** Free the buffer. Has no effect on a zeroed reader. */
void kvr_http_reader_fini(struct kvr_http_reader *reader);

/**
 * Process the next bytes of the connection.
 * @return 1: the response is complete; 0: more is needed; -EBADMSG: malformed; -EPROTO: switch to
 * another protocol (101); -E2BIG: the head exceeds the limits of kvr_http.h; -ENOMEM; or the result
 * of a callback.
 */
int kvr_http_reader_add(struct kvr_http_reader *reader, const void *data, size_t len);

/**
 * The connection has ended. @return 1: so has the response; -EPIPE: it is truncated; or the result
 * of a callback.
 */
int kvr_http_reader_end(struct kvr_http_reader *reader);

/** True if the response is complete and the connection can take another request. */
bool kvr_http_reader_keeps(const struct kvr_http_reader *reader);

#endif
