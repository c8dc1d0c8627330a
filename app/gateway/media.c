/* SPDX-License-Identifier: BSD-3-Clause */
/* Parsing of multimodal routing data. */
#include "media.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_OF_BLOCK 64 /* type of kvr_client_mm.n */

/* Read the hashes of a block's objects; @p out NULL: only count. @return their number or
 * -EINVAL. */
static int read_block(const struct kvr_json_value *info, uint64_t out[])
{
	static const char *const names[] = {"mm_objects"}, *const inner[] = {"mm_hash"};
	struct kvr_json_value objects, name, object, hash;
	struct kvr_json_iter it;
	uint64_t h;
	int n = 0;

	if (info->type == KVR_JSON_NULL)
		return 0;
	if (info->type != KVR_JSON_OBJECT)
		return -EINVAL;
	kvr_json_members(info, names, 1, &objects);
	if (objects.type == KVR_JSON_NONE || objects.type == KVR_JSON_NULL)
		return 0;
	if (objects.type != KVR_JSON_ARRAY)
		return -EINVAL;
	it = kvr_json_begin(&objects);
	while (kvr_json_next(&it, &name, &object)) {
		kvr_json_members(&object, inner, 1, &hash);
		if (n == MAX_OF_BLOCK || kvr_json_u64(&hash, &h) != 0)
			return -EINVAL;
		if (out != NULL)
			out[n] = h;
		n++;
	}
	return n;
}

static void fill_blocks(const struct kvr_json_value *infos, struct kvr_client_mm mm[],
			uint64_t hashes[])
{
	struct kvr_json_iter it = kvr_json_begin(infos);
	struct kvr_json_value name, info;

	for (uint32_t block = 0; kvr_json_next(&it, &name, &info); block++) {
		const int n = read_block(&info, hashes);

		if (n == 0)
			continue;
		*mm++ = (struct kvr_client_mm){block, (uint32_t)n, hashes};
		hashes += n;
	}
}

int gw_media_read(const struct kvr_json_value *infos, struct kvr_client_mm **mm, char *err,
		  size_t errlen)
{
	struct kvr_json_iter it = kvr_json_begin(infos);
	struct kvr_json_value name, info;
	size_t objects = 0;
	int blocks = 0;

	if (mm != NULL)
		*mm = NULL;
	if (infos->type == KVR_JSON_NONE || infos->type == KVR_JSON_NULL)
		return 0;
	if (infos->type != KVR_JSON_ARRAY) {
		snprintf(err, errlen, "mm_routing_info.block_mm_infos: expected an array");
		return -EINVAL;
	}
	for (uint32_t i = 0; kvr_json_next(&it, &name, &info); i++) {
		const int n = read_block(&info, NULL);

		if (n < 0) {
			snprintf(
				err, errlen,
				"mm_routing_info.block_mm_infos: block %u: expected null or {\"mm_objects\": [{\"mm_hash\": number}]} with at most %u objects",
				i, MAX_OF_BLOCK);
			return -EINVAL;
		}
		objects += (size_t)n;
		blocks += n > 0;
	}
	if (mm == NULL || blocks == 0)
		return blocks;
	*mm = malloc((size_t)blocks * sizeof(**mm) + objects * sizeof(uint64_t));
	if (*mm == NULL)
		return -ENOMEM;
	fill_blocks(infos, *mm, (uint64_t *)(*mm + blocks));
	return blocks;
}
