/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef GW_CHUNKS_H
#define GW_CHUNKS_H

/**
 * @file
 * Strict decoder of chunked content (RFC 9112, 7.1). libh2o's own decoder accepts invalid chunks:
 * "0x5" is a length of 0, and everything up to a line feed, including carriage returns, belongs to
 * the line. A proxy in front may read these differently, so that content of one becomes the next
 * request of the other. chunks.c overrides libh2o's function of this name. Pure; any thread.
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
