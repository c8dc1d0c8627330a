/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_CHUNKS_H
#define GW_CHUNKS_H

/**
 * @file
 * Contents in chunks (RFC 9112, 7.1), by the letter. libh2o's own decoder takes what is no chunk
 * for one: "0x5" is a length of 0 to it, and all up to a line feed, carriage returns among it,
 * belongs to the line. Whoever stands before us may read these in another way, and what is content
 * to one of us is then the next request to the other. libh2o calls it as any shared library calls
 * another: chunks.c takes its name, and its meaning. Pure; any thread.
 */

#include <stddef.h>
#include <sys/types.h>

/** Where a content is; libh2o's, zeroed before the first byte. */
struct phr_chunked_decoder {
	size_t bytes_left_in_chunk;
	char consume_trailer; /* those who read the content read the trailer, too */
	char _hex_count;
	char _state; /* libh2o looks at it: 2 is data */
};

/**
 * Decode in place the *@p len bytes that have come; *@p len becomes how many of them are content,
 * what lies behind the content's end is moved behind these.
 * @return the number of bytes behind the end; -2: it has not come yet; -1: these are no chunks.
 */
ssize_t phr_decode_chunked(struct phr_chunked_decoder *d, char *buf, size_t *len);

#endif
