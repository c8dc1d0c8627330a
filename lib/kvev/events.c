/* SPDX-License-Identifier: BSD-3-Clause */
/* Events of an engine, applied to the table. */
#include "kvmap_pvt.h"

#include <errno.h>

static void learn_group(struct kvr_kvmap *map, const struct kvr_kvev *ev)
{
	if (ev->block_size != map->block_size || map->group_state == KVMAP_GROUP_KNOWN ||
	    (map->group_state == KVMAP_GROUP_PRESUMED && !ev->full_group))
		return;
	if (map->group_state == KVMAP_GROUP_PRESUMED && map->group != ev->group)
		kvr_kvmap_clear(map); /* blocks of the presumed group: their removals would no
					 longer match */
	map->group = ev->group;
	map->group_state = ev->full_group ? KVMAP_GROUP_KNOWN : KVMAP_GROUP_PRESUMED;
}

/* Return true if the event is about the cache group of the table. A removal has a group number
 * only. */
static bool is_of_group(struct kvr_kvmap *map, const struct kvr_kvev *ev)
{
	if (!ev->has_group || ev->other_group)
		return !ev->other_group;
	if (ev->type == KVR_KVEV_STORED)
		learn_group(map, ev);
	if (map->group_state == KVMAP_NO_GROUP)
		return ev->type == KVR_KVEV_STORED;
	return ev->group == map->group;
}

static int take_stored(struct kvr_kvmap *map, const struct kvr_kvev *ev)
{
	if (ev->lookahead && map->newest == NULL) {
		if (map->n > 0) /* names stored so far are not linked */
			kvr_kvmap_clear(map);
		if (kvr_kvmap__link_names(map) < 0)
			return -ENOMEM;
	}
	if (ev->n_tokens == 0) { /* moved between tiers: the blocks are known */
		for (uint32_t i = 0; i < ev->n_hashes; i++)
			if (!kvr_kvmap__move(map, ev, ev->hashes[i]))
				kvr_cell_add(&map->st.orphans, 1);
		return 0;
	}
	if (ev->tier != KVR_TIER_DEVICE)
		return kvr_kvmap__store_lower(map, ev);
	if (map->learned == 0) {
		map->learned = ev->block_size;
		map->learned_eagle = ev->eagle;
	}
	if (ev->block_size == map->block_size)
		return kvr_kvmap__store(map, ev);
	kvr_cell_add(&map->st.size, 1);
	return 0;
}

static int apply_event(struct kvr_kvmap *map, const struct kvr_kvev *ev)
{
	if (ev->type == KVR_KVEV_UNKNOWN) {
		kvr_cell_add(&map->st.unknown, 1);
		return 0;
	}
	if (ev->type == KVR_KVEV_CLEARED) {
		kvr_kvmap_clear(map);
		return 0;
	}
	if (ev->foreign) {
		kvr_cell_add(&map->st.foreign, 1);
		return 0;
	}
	if (!is_of_group(map, ev)) {
		kvr_cell_add(&map->st.group, 1);
		return 0;
	}
	if (ev->fault == KVR_KVEV_MEDIUM) { /* no block was stored for this medium either */
		kvr_cell_add(&map->st.medium, 1);
		return 0;
	}
	if (ev->fault != KVR_KVEV_FINE) {
		kvr_cell_add(&map->st.bad, 1);
		return ev->type == KVR_KVEV_REMOVED ? -EBADMSG : 0;
	}
	if (ev->type == KVR_KVEV_STORED)
		return take_stored(map, ev);
	kvr_cell_add(&map->st.absent, kvr_kvmap__remove(map, ev));
	if (ev->tier != KVR_TIER_DEVICE && map->chunk > 1)
		kvr_kvmap__remove_parts(map, ev);
	return 0;
}

int kvr_kvmap_apply(struct kvr_kvmap *map, const struct kvr_kvev *ev)
{
	const int rc = apply_event(map, ev);

	kvr_cell_add(&map->st.events, 1);
	kvr_cell_set(&map->st.held, map->n);
	return rc;
}
