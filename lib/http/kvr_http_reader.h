/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_HTTP_READER_H
#define KVR_HTTP_READER_H

/**
 * @file
 * The response that a connection brings, as HTTP/1.0 and HTTP/1.1 frame it (RFC 9112, section 6):
 * its head, and its content without the coding: by length, in chunks, or until the connection
 * ends. Informational responses (1xx) are not told, trailers neither. What is cut anywhere reads
 * the same; a head that came in pieces is kept until it is whole, KVR_HTTP_MAX_HEAD at most, and
 * nothing else is. One thread; linear in the bytes.
 */

#include "kvr_http.h"

/** Who is told. */
struct kvr_http_reader_ops {
	/** The head, once, before any content; @p h is valid during the call, and has the fields of
	 * the connection, too. @return 0, or a negative number that ends it. */
	int (*head)(void *arg, const struct kvr_http_head *h);
	/** The next bytes of the content. @return as head(). */
	int (*content)(void *arg, const char *data, size_t len);
};

/** The state of one answer; fields are private. */
struct kvr_http_reader {
	const struct kvr_http_reader_ops *ops;
	void *arg;
	uint64_t parser[4];
	char *held; /* beginning of a head that is not whole; KVR_HTTP_MAX_HEAD bytes, or NULL */
	uint32_t held_len;
	int err;
	bool bare;	/* to a HEAD: no content, whatever the head says */
	bool head_done; /* content comes */
	bool whole, keep, surplus;
};

/** Begin with the answer to one request; @p is_head: whose method was HEAD. The reader must stay
 * where it is until kvr_http_reader_fini(). */
void kvr_http_reader_init(struct kvr_http_reader *r, const struct kvr_http_reader_ops *ops,
			  void *arg, bool is_head);

/** Let go of what is held. A zeroed one is left alone. */
void kvr_http_reader_fini(struct kvr_http_reader *r);

/**
 * Take what the connection has brought.
 * @return 1: the answer is whole; 0: it goes on; -EBADMSG: this is no such answer; -EPROTO: it goes
 * on in another protocol (101); -E2BIG: its head is above the bounds of kvr_http.h; -ENOMEM; or
 * what a callback has returned.
 */
int kvr_http_reader_add(struct kvr_http_reader *r, const void *data, size_t len);

/** The connection has ended. @return 1: that ends the answer, too; -EPIPE: it is cut off; or what a
 * callback has returned. */
int kvr_http_reader_end(struct kvr_http_reader *r);

/** Once it is whole: may the connection take another request? */
bool kvr_http_reader_keeps(const struct kvr_http_reader *r);

#endif
