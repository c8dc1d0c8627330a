/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_SSE_H
#define KVR_SSE_H

/**
 * @file
 * Parser of server-sent events (text/event-stream of HTML): the data of each event, its lines
 * joined, however the bytes are split. The caller provides memory for one event, and may provide
 * more for a longer one. Otherwise the event is truncated and marked, and the stream continues
 * after it. Events without data are skipped, and so is an event that is incomplete when the stream
 * ends. Any thread; linear time.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Provide @p size bytes for an event. @return the memory with its former content, and in @p size
 * its size (at least as large); NULL: truncate the event.
 */
typedef char *kvr_sse_grow_fn(void *arg, uint32_t *size);

/** State of one stream; fields are private. */
struct kvr_sse {
	char *buf;
	kvr_sse_grow_fn *grow; /* NULL: memory does not grow */
	void *grow_arg;
	uint32_t size, len; /* data of the event */
	uint32_t line;	    /* bytes of the line so far */
	char field[8];	    /* start of the field name */
	bool is_data, colon, space, cr, some, cut;
};

/** An event. @p cut: it was longer than the memory, and @p data is its beginning. */
typedef void kvr_sse_fn(void *arg, const char *data, uint32_t len, bool cut);

/** Begin. @p buf holds one event and stays the caller's. */
void kvr_sse_init(struct kvr_sse *sse, char *buf, uint32_t size);

/** Call @p grow with @p arg if an event needs more memory. */
void kvr_sse_grows(struct kvr_sse *sse, kvr_sse_grow_fn *grow, void *arg);

/** Process the next @p len bytes and call @p fn for each event that ends in them. */
void kvr_sse_add(struct kvr_sse *sse, const void *data, size_t len, kvr_sse_fn *fn, void *arg);

/** True if an event has begun but not ended. At the end of a stream: it is truncated. */
bool kvr_sse_open(const struct kvr_sse *sse);

#endif
