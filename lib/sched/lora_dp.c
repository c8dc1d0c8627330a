/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bookings per LoRA adapter (section 6.1). A table of at most 128 names, searched
 * linearly by hash: a scan of 128 words is faster than a cache miss in a hash table. A name keeps
 * its entry while it has bookings, and afterwards until another name needs the entry.
 */
#include "sched_pvt.h"

#define OTHER (KVR_SCHED_ADAPTERS + 1) /* slot.adapter: 0: none; index + 1; or this */

static uint64_t name_hash(const struct kvr_sched *s, const struct kvr_str *name)
{
	uint64_t h = s->lora_seed ^ name->len, part;
	uint32_t i;

	for (i = 0; i + 8 <= name->len; i += 8) {
		memcpy(&part, name->p + i, 8);
		h = kvr_mix64(h ^ part);
	}
	part = 0;
	memcpy(&part, name->p + i, name->len - i);
	return kvr_mix64(h ^ part);
}

static uint32_t find_adapter(const struct kvr_sched *s, uint64_t hash, const struct kvr_str *name)
{
	for (uint32_t i = 0; i < s->n_loras; i++)
		if (s->lora_hash[i] == hash && s->lora[i].len == name->len &&
		    memcmp(s->lora[i].name, name->p, name->len) == 0)
			return i;
	return NIL;
}

/* Return an entry for a new name: an unused one, or one without bookings. */
static uint32_t take_entry(struct kvr_sched *s, uint64_t hash, const struct kvr_str *name)
{
	uint32_t i = s->n_loras;

	if (i < KVR_SCHED_ADAPTERS)
		s->n_loras++;
	else
		for (i = 0; i < KVR_SCHED_ADAPTERS && s->lora[i].active > 0; i++)
			;
	if (i == KVR_SCHED_ADAPTERS)
		return NIL;
	s->lora_hash[i] = hash;
	s->lora[i] = (struct kvr_sched_lora){.len = name->len};
	memcpy(s->lora[i].name, name->p, name->len);
	return i;
}

uint16_t kvr_sched__lora_begin(struct kvr_sched *s, const struct kvr_hints *h)
{
	uint64_t hash;
	uint32_t i = NIL;

	if (h == NULL || h->lora.len == 0)
		return 0;
	if (h->lora.len <= KVR_SCHED_LORA_NAME) {
		hash = name_hash(s, &h->lora);
		i = find_adapter(s, hash, &h->lora);
		if (i == NIL)
			i = take_entry(s, hash, &h->lora);
	}
	if (i == NIL) {
		s->lora_other.active++;
		s->lora_other.booked++;
		return OTHER;
	}
	s->lora[i].active++;
	s->lora[i].booked++;
	return (uint16_t)(i + 1);
}

void kvr_sched__lora_end(struct kvr_sched *s, uint16_t adapter)
{
	if (adapter == OTHER)
		s->lora_other.active--;
	else if (adapter != 0)
		s->lora[adapter - 1].active--;
}

uint32_t kvr_sched_loras(const struct kvr_sched *s, uint32_t from, struct kvr_sched_lora v[],
			 uint32_t cap)
{
	for (uint32_t i = 0; i < cap && from + i < s->n_loras; i++)
		v[i] = s->lora[from + i];
	return s->n_loras;
}

uint32_t kvr_sched_lora_active(const struct kvr_sched *s, const char *name, size_t len)
{
	const struct kvr_str str = {name, (uint32_t)len};
	uint32_t i = NIL;

	if (len > 0 && len <= KVR_SCHED_LORA_NAME)
		i = find_adapter(s, name_hash(s, &str), &str);
	return i == NIL ? 0 : s->lora[i].active;
}

void kvr_sched_lora_other(const struct kvr_sched *s, struct kvr_sched_lora *out)
{
	*out = s->lora_other;
}
