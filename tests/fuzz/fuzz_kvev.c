/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzz target: batches of KV events, decoded and applied to a small table. A batch is two bytes of
 * length and its payload. The blocks reported as stored and not removed must equal the table's
 * dump, and never exceed its size.
 */
#include "fuzz.h"

#include "kvr_kvev.h"
#include "kvr_kvmap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(x)                                                                                 \
	do {                                                                                       \
		if (!(x))                                                                          \
			abort();                                                                   \
	} while (0)

#define ROOM 32u

static volatile uint64_t sink;

static void on_stored(void *user, enum kvr_tier tier, const uint64_t *parent, const uint64_t sh[],
		      uint32_t n)
{
	int64_t *held = user;

	REQUIRE(n > 0 && tier < KVR_TIERS);
	for (uint32_t i = 0; i < n; i++)
		sink += sh[i];
	*held += n;
}

static void on_removed(void *user, enum kvr_tier tier, const uint64_t sh[], uint32_t n)
{
	int64_t *held = user;

	REQUIRE(n > 0 && tier < KVR_TIERS);
	for (uint32_t i = 0; i < n; i++)
		sink += sh[i];
	*held -= n;
	REQUIRE(*held >= 0);
}

static void on_cleared(void *user)
{
	*(int64_t *)user = 0;
}

static void apply_batch(struct kvr_kvev_decoder *d, struct kvr_kvmap *m, const uint8_t *p, size_t n)
{
	struct kvr_kvev_batch batch;
	struct kvr_kvev ev;
	uint32_t events = 0;
	int rc = kvr_kvev_open(d, p, n, &batch);

	while (rc == 0 && (rc = kvr_kvev_next(d, &ev)) > 0) {
		REQUIRE(++events <= batch.n_events && batch.n_events <= n);
		REQUIRE(ev.n_hashes <= n && ev.n_tokens <= n + 1 && ev.n_mm <= n);
		rc = kvr_kvmap_apply(m, &ev);
	}
	REQUIRE(rc == 0 || rc == -EBADMSG);
	if (rc < 0)
		kvr_kvmap_clear(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvr_kvev_decoder *d = kvr_kvev_create(size % 2);
	int64_t held = 0, dumped = 0;
	const struct kvr_kvmap_out out = {on_stored, on_removed, on_cleared, &held};
	struct kvr_kvmap *m = kvr_kvmap_create(4, ROOM, 3, &out);
	struct kvr_kvmap_run run;
	uint64_t pos = 0;

	REQUIRE(d != NULL && m != NULL);
	while (size >= 2) {
		const size_t claim = data[0] | (size_t)data[1] << 8;
		const size_t n = claim < size - 2 ? claim : size - 2;

		apply_batch(d, m, data + 2, n);
		REQUIRE(held <= ROOM * KVR_TIERS);
		data += 2 + n;
		size -= 2 + n;
	}
	while (kvr_kvmap_next(m, &pos, &run))
		dumped += run.n;
	REQUIRE(dumped == held);
	kvr_kvmap_destroy(m);
	kvr_kvev_destroy(d);
	return 0;
}
