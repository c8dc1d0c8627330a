/* SPDX-License-Identifier: BSD-3-Clause */
#include "kvr_sc_line.h"

#include <rte_common.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

struct kvr_sc_chunk {
	SLIST_ENTRY(kvr_sc_chunk) link;
	alignas(RTE_CACHE_LINE_SIZE) char bytes[];
};

struct kvr_sc_line *kvr_sc_line_new(json_t *obj)
{
	struct kvr_sc_line *l = calloc(1, sizeof(*l));

	if (l == NULL)
		abort();
	l->obj = obj;
	return l;
}

void kvr_sc_line_free(struct kvr_sc_line *l)
{
	if (l == NULL)
		return;
	while (!SLIST_EMPTY(&l->mem)) {
		struct kvr_sc_chunk *c = SLIST_FIRST(&l->mem);

		SLIST_REMOVE_HEAD(&l->mem, link);
		free(c);
	}
	json_decref(l->obj);
	free(l);
}

void *kvr_sc_alloc(struct kvr_sc_line *l, size_t n, size_t size)
{
	const size_t bytes = RTE_ALIGN_CEIL(n * size, RTE_CACHE_LINE_SIZE);
	struct kvr_sc_chunk *c = aligned_alloc(RTE_CACHE_LINE_SIZE, sizeof(*c) + bytes);

	if (c == NULL)
		abort();
	SLIST_INSERT_HEAD(&l->mem, c, link);
	return memset(c->bytes, 0, bytes);
}

void *kvr_sc_ints(struct kvr_sc_line *l, const json_t *list, size_t width)
{
	void *p = kvr_sc_alloc(l, json_array_size(list), width);

	for (size_t i = 0; i < json_array_size(list); i++)
		if (width == sizeof(uint32_t))
			((uint32_t *)p)[i] = (uint32_t)kvr_sc_u64(json_array_get(list, i));
		else
			((uint64_t *)p)[i] = kvr_sc_u64(json_array_get(list, i));
	return p;
}
