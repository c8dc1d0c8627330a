/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef KVR_ENGINE_BUFFER_PVT_H
#define KVR_ENGINE_BUFFER_PVT_H

/** @file Buffers grow by doubling. A zeroed buffer is empty. */

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "kvr_engine.h"

/** Append @p len bytes. @return false: no memory, and the buffer is unchanged. */
bool kvr_engine__append_bytes(struct kvr_engine_buffer *buffer, const void *data, size_t len);

static inline bool kvr_engine__append_text(struct kvr_engine_buffer *buffer, const char *text)
{
	return kvr_engine__append_bytes(buffer, text, strlen(text));
}

/** Free the memory; the buffer is empty afterwards. */
void kvr_engine__free_buffer(struct kvr_engine_buffer *buffer);

#endif
