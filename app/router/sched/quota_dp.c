/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Quotas of one source in a pool: live requests, waiting jobs and frames, sessions. The tables
 * belong to the pool's scheduler lcore, like the resources.
 */
#include "sched/quota.h"
#include "sched/session.h"

/* Whether the source of the job may have @p n more; otherwise store the reason in the job. */
static bool may(struct job *j, const struct kvr_quota *s, enum kvr_wire_source_limit what,
		uint32_t n, uint64_t free)
{
	if (likely(kvr_quota_allows(s, kvr_source_key(&j->client), n, free, &j->excess)))
		return true;
	j->excess_of = (uint8_t)what;
	return false;
}

bool share_slot_may(struct pool *p, struct job *j)
{
	/* Lingering slots are reclaimed when needed. */
	const uint64_t free = kvr_flight_size(p->requests) - kvr_flight_count(p->requests) +
			      kvr_flight_lingering(p->requests);

	/* Without a free slot the quota is not the reason. */
	return free == 0 || may(j, p->live.shares.slots, KVR_QUOTA_REQUESTS, 1, free);
}

void share_slot_take(struct pool *p, struct kvr_flight *r, const struct job *j)
{
	r->quota_ref = kvr_quota_take(p->live.shares.slots, kvr_source_key(&j->client), 1);
}

static void give_back(struct pool *p, struct kvr_flight *r)
{
	kvr_quota_return(p->live.shares.slots, r->quota_ref, 1);
	r->quota_ref = 0;
	if (r->state == KVR_FLIGHT_LIVE && r->relay.booked && r->relay.leg == KVR_LEG_MAIN)
		kvr_stats_sub(p->count, PC_CLIENT_BOOKINGS_LIVE, 1);
}

void slot_end(struct pool *p, struct kvr_flight *r, uint64_t now_ns)
{
	give_back(p, r);
	kvr_flight_end(p->requests, r, now_ns);
}

void slot_release(struct pool *p, struct kvr_flight *r)
{
	give_back(p, r);
	kvr_flight_release(p->requests, r);
}

enum kvr_code share_wait(struct pool *p, struct job *j, uint32_t frames, uint32_t free)
{
	struct shares *s = &p->live.shares;
	const uint64_t key = kvr_source_key(&j->client);

	if (s->n_waiting >= p->opt->max_jobs)
		return KVR_E_NO_MEMORY;
	if (!may(j, s->jobs, KVR_QUOTA_WAITING, 1, p->opt->max_jobs - s->n_waiting) ||
	    !may(j, s->frames, KVR_QUOTA_WAITING, frames, free))
		return KVR_E_SOURCE_LIMIT;
	j->share_job = kvr_quota_take(s->jobs, key, 1);
	j->share_frames = kvr_quota_take(s->frames, key, frames);
	s->n_waiting++;
	return KVR_OK;
}

enum kvr_code share_result(struct pool *p, struct job *j, uint32_t frames, uint32_t free)
{
	struct shares *s = &p->live.shares;

	if (!may(j, s->frames, KVR_QUOTA_WAITING, frames, free))
		return KVR_E_SOURCE_LIMIT;
	j->pair->share_result = kvr_quota_take(s->frames, kvr_source_key(&j->client), frames);
	return KVR_OK;
}

void share_go_on(struct pool *p, struct job *j, uint32_t frames)
{
	kvr_quota_return(p->live.shares.jobs, j->share_job, 1);
	kvr_quota_return(p->live.shares.frames, j->share_frames, frames);
	p->live.shares.n_waiting--;
}

bool share_session_may(struct pool *p, const struct kvr_path *client, struct kvr_quota_state *st)
{
	const uint64_t free = kvr_session_room(p->sessions->table);

	/* Without a free entry the quota is not the reason. */
	return free == 0 ||
	       kvr_quota_allows(p->live.shares.sessions, kvr_source_key(client), 1, free, st);
}
