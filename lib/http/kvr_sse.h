/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SSE_H
#define KVR_SSE_H

/**
 * @file
 * Server-sent events (the text/event-stream of HTML) out of bytes that are cut anywhere: the data
 * of each event, its lines joined. The caller gives the memory for one event, and may give more
 * when one is longer; else it is told as such and dropped, and the stream goes on behind it. Events
 * without data are not told, nor is one that is not ended when the stream is. Any thread; linear in
 * the bytes.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * An event needs @p size bytes of memory. @return where it is then, with what was in it, and in
 * @p size how many bytes there are, not fewer; NULL: it is cut.
 */
typedef char *kvr_sse_grow_fn(void *arg, uint32_t *size);

/** The state of one stream; fields are private. */
struct kvr_sse {
	char *buf;
	kvr_sse_grow_fn *grow; /* NULL: it does not */
	void *grow_arg;
	uint32_t size, len; /* of the event's data */
	uint32_t line;	    /* bytes of the line seen so far */
	char field[8];	    /* the beginning of its name */
	bool is_data, colon, space, cr, some, cut;
};

/** An event. @p cut: it was longer than the memory, @p data is its beginning. */
typedef void kvr_sse_fn(void *arg, const char *data, uint32_t len, bool cut);

/** Begin; @p buf holds one event and stays the caller's. */
void kvr_sse_init(struct kvr_sse *s, char *buf, uint32_t size);

/** From now on @p grow is asked for more memory, with @p arg. */
void kvr_sse_grows(struct kvr_sse *s, kvr_sse_grow_fn *grow, void *arg);

/** Take the next @p len bytes, and call @p fn for each event that ends in them. */
void kvr_sse_add(struct kvr_sse *s, const void *data, size_t len, kvr_sse_fn *fn, void *arg);

/** Is there an event that was begun and is not ended? (At the end of a stream: it was cut off.) */
bool kvr_sse_open(const struct kvr_sse *s);

#endif
