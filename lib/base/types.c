/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables of names, generated from the lists of kvr_types.h. */
#include "kvr_types.h"

#include <stddef.h>
#include <string.h>

#define TEXT(name, text, number) [number] = text,

const char *const kvr_role_names[] = {KVR_TYPES_ROLES(TEXT) NULL};

static const char *const legs[KVR_LEGS] = {KVR_TYPES_LEGS(TEXT)};
static const char *const ways[KVR_WAYS] = {KVR_TYPES_WAYS(TEXT)};
static const char *const tiers[KVR_TIERS] = {KVR_TYPES_TIERS(TEXT)};

static const char *name_at(const char *const list[], size_t n, unsigned int i)
{
	return i < n && list[i] != NULL ? list[i] : "?";
}

static int find_text(const char *const list[], size_t n, const char *text)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(list[i], text) == 0)
			return (int)i;
	return -1;
}

const char *kvr_role_name(unsigned int role)
{
	return name_at(kvr_role_names, KVR_ROLES, role);
}

const char *kvr_leg_name(unsigned int leg)
{
	return name_at(legs, KVR_LEGS, leg);
}

const char *kvr_way_name(unsigned int way)
{
	return name_at(ways, KVR_WAYS, way);
}

const char *kvr_tier_name(unsigned int tier)
{
	return name_at(tiers, KVR_TIERS, tier);
}

int kvr_role_find(const char *text)
{
	return find_text(kvr_role_names, KVR_ROLES, text);
}

int kvr_tier_find(const char *text)
{
	return find_text(tiers, KVR_TIERS, text);
}
