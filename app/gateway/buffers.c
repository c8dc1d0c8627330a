/* SPDX-License-Identifier: BSD-3-Clause */
#include "buffers.h"

#include <dlfcn.h>
#include <h2o.h>
#include <stdlib.h>

#define SMALL (64u << 10) /* bytes that any buffer may have: heads, frames */

static __thread struct {
	int64_t bytes; /* a buffer that was made before the first count may go */
	uint64_t most;
	kvr_cell_t *row;
} mine;

void gw_buffers_limit(uint64_t bytes, kvr_cell_t *row)
{
	mine.most = bytes;
	mine.row = row;
}

static void *theirs(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	if (found == NULL)
		abort(); /* libh2o is linked: it cannot be */
	return found;
}

/* Only buffers of input: of others libh2o believes that they always grow. */
static bool may_grow(const h2o_buffer_t *b, size_t more)
{
	return mine.most == 0 || b->bytes == NULL ||
	       b->_prototype != &h2o_socket_buffer_prototype || b->size + more <= SMALL ||
	       more <= b->capacity - b->size - (size_t)(b->bytes - b->_buf) ||
	       mine.bytes + (int64_t)(b->size + more) <= (int64_t)mine.most;
}

h2o_iovec_t h2o_buffer_reserve(h2o_buffer_t **inbuf, size_t min_guarantee)
{
	static __thread h2o_iovec_t (*fn)(h2o_buffer_t * *inbuf, size_t min_guarantee);
	const h2o_buffer_t *before = *inbuf;
	h2o_iovec_t room;

	if (fn == NULL)
		*(void **)&fn = theirs("h2o_buffer_reserve");
	if (!may_grow(before, min_guarantee)) {
		kvr_stats_inc(mine.row, GW_BODIES_CUT);
		return h2o_iovec_init(NULL, 0);
	}
	room = fn(inbuf, min_guarantee);
	if (*inbuf != before)
		mine.bytes += (int64_t)(*inbuf)->capacity;
	return room;
}

void h2o_buffer__do_free(h2o_buffer_t *buffer)
{
	static __thread void (*fn)(h2o_buffer_t * buffer);

	if (fn == NULL)
		*(void **)&fn = theirs("h2o_buffer__do_free");
	mine.bytes -= (int64_t)buffer->capacity;
	fn(buffer);
}
