/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Quotas of one source in a pool: live requests, waiting jobs and frames, sessions. The tables
 * belong to the pool's scheduler lcore, like the resources.
 */
#include "sched/quota.h"
#include "sched/session.h"

/* Whether the source of the job may have @p n more; otherwise store the reason in the job. */
static bool quota_allows(struct job *job, const struct kvr_quota *s,
			 enum kvr_wire_source_limit what, uint32_t n, uint64_t free)
{
	if (likely(kvr_quota_allows(s, kvr_source_key(&job->client), n, free, &job->excess)))
		return true;
	job->excess_of = (uint8_t)what;
	return false;
}

bool quota_slot_allows(struct pool *pool, struct job *job)
{
	/* Lingering slots are reclaimed when needed. */
	const uint64_t free = kvr_flight_size(pool->requests) - kvr_flight_count(pool->requests) +
			      kvr_flight_lingering(pool->requests);

	/* Without a free slot the quota is not the reason. */
	return free == 0 || quota_allows(job, pool->live.quotas.slots, KVR_QUOTA_REQUESTS, 1, free);
}

void quota_slot_take(struct pool *pool, struct kvr_flight *slot, const struct job *job)
{
	slot->quota_ref = kvr_quota_take(pool->live.quotas.slots, kvr_source_key(&job->client), 1);
}

static void give_back(struct pool *pool, struct kvr_flight *slot)
{
	kvr_quota_return(pool->live.quotas.slots, slot->quota_ref, 1);
	slot->quota_ref = 0;
	if (slot->state == KVR_FLIGHT_LIVE && slot->relay.booked && slot->relay.leg == KVR_LEG_MAIN)
		kvr_stats_sub(pool->count, PC_CLIENT_BOOKINGS_LIVE, 1);
}

void slot_end(struct pool *pool, struct kvr_flight *slot, uint64_t now_ns)
{
	give_back(pool, slot);
	kvr_flight_end(pool->requests, slot, now_ns);
}

void slot_release(struct pool *pool, struct kvr_flight *slot)
{
	give_back(pool, slot);
	kvr_flight_release(pool->requests, slot);
}

enum kvr_code quota_wait(struct pool *pool, struct job *job, uint32_t frames, uint32_t free)
{
	struct pool_quotas *s = &pool->live.quotas;
	const uint64_t key = kvr_source_key(&job->client);

	if (s->n_waiting >= pool->opt->max_jobs)
		return KVR_E_NO_MEMORY;
	if (!quota_allows(job, s->jobs, KVR_QUOTA_WAITING, 1, pool->opt->max_jobs - s->n_waiting) ||
	    !quota_allows(job, s->frames, KVR_QUOTA_WAITING, frames, free))
		return KVR_E_SOURCE_LIMIT;
	job->quota_job = kvr_quota_take(s->jobs, key, 1);
	job->quota_frames = kvr_quota_take(s->frames, key, frames);
	s->n_waiting++;
	return KVR_OK;
}

enum kvr_code quota_result(struct pool *pool, struct job *job, uint32_t frames, uint32_t free)
{
	struct pool_quotas *s = &pool->live.quotas;

	if (!quota_allows(job, s->frames, KVR_QUOTA_WAITING, frames, free))
		return KVR_E_SOURCE_LIMIT;
	job->pair->quota_result = kvr_quota_take(s->frames, kvr_source_key(&job->client), frames);
	return KVR_OK;
}

void quota_wait_end(struct pool *pool, struct job *job, uint32_t frames)
{
	kvr_quota_return(pool->live.quotas.jobs, job->quota_job, 1);
	kvr_quota_return(pool->live.quotas.frames, job->quota_frames, frames);
	pool->live.quotas.n_waiting--;
}

bool quota_session_allows(struct pool *pool, const struct kvr_path *client,
			  struct kvr_quota_state *st)
{
	const uint64_t free = kvr_session_room(pool->sessions->table);

	/* Without a free entry the quota is not the reason. */
	return free == 0 ||
	       kvr_quota_allows(pool->live.quotas.sessions, kvr_source_key(client), 1, free, st);
}
