/* SPDX-License-Identifier: BSD-3-Clause */
#include "buffer_pvt.h"

#include <stdlib.h>

#define FIRST_BYTES 64u

bool kvr_engine__append_bytes(struct kvr_engine_buffer *buffer, const void *data, size_t len)
{
	if (len > buffer->cap - buffer->len) {
		const size_t need = buffer->len + len;
		const size_t cap = need < FIRST_BYTES / 2 ? FIRST_BYTES : 2 * need;
		char *larger = realloc(buffer->p, cap);

		if (larger == NULL)
			return false;
		buffer->p = larger;
		buffer->cap = cap;
	}
	if (len > 0)
		memcpy(buffer->p + buffer->len, data, len);
	buffer->len += len;
	return true;
}

void kvr_engine__free_buffer(struct kvr_engine_buffer *buffer)
{
	free(buffer->p);
	*buffer = (struct kvr_engine_buffer){0};
}
