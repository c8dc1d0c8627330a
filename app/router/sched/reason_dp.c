/* SPDX-License-Identifier: BSD-3-Clause */
/* Texts of rejections, with knowledge of the pool and the request besides the code. */
#include "sched/reason.h"

#include "sched/request.h"
#include "sched/session.h"

static void say_queue_limit(struct kvr_reason *t, const struct pool *pool,
			    const struct rejection *why)
{
	static const char *const what[] = {"requests", "prompt tokens", "cached tokens"};
	const uint64_t kind = why->detail[0];

	kvr_reason_say(t, "policy class ");
	kvr_reason_say(t, pool->conf->n_classes > why->policy_class
				  ? pool->conf->classes[why->policy_class].name
				  : "default");
	kvr_reason_count(t, ": ", why->detail[1]);
	kvr_reason_say(t, " ");
	kvr_reason_say(t, kind >= 1 && kind <= RTE_DIM(what) ? what[kind - 1] : "?");
	kvr_reason_count(t, " waiting, limit ", why->detail[2]);
}

static void say_source_limit(struct kvr_reason *t, const struct rejection *why)
{
	static const char *const what[] = {
		[KVR_QUOTA_REQUESTS] = "live requests",
		[KVR_QUOTA_WAITING] = "waiting requests",
		[KVR_QUOTA_SESSIONS] = "sessions",
	};
	const uint64_t kind = why->detail[0];

	kvr_reason_count(t, "quota of this source: ", why->detail[1]);
	kvr_reason_say(t, " of ");
	kvr_reason_say(t, kind >= KVR_QUOTA_REQUESTS && kind < RTE_DIM(what) ? what[kind]
									     : "something");
	kvr_reason_count(t, ", limit ", why->detail[2]);
}

static void say_no_endpoints(struct kvr_reason *t, const struct pool *pool,
			     const struct rejection *why)
{
	kvr_reason_say(t, "pool ");
	kvr_reason_say(t, pool->name);
	kvr_reason_count(t, ": no eligible rank; workers ", why->detail[0]);
	kvr_reason_count(t, ", ranks ", why->detail[1]);
	kvr_reason_count(t, ", open ", why->detail[2]);
}

static void say_overloaded(struct kvr_reason *t, const struct pool *pool)
{
	uint32_t ranks, open;

	kvr_sched_n_ranks(pool->sched, &ranks, &open);
	kvr_reason_say(t, "pool ");
	kvr_reason_say(t, pool->name);
	kvr_reason_count(t, ": all eligible ranks exceed a threshold; ranks ", ranks);
	kvr_reason_count(t, ", open ", open);
}

/* "words: worker W". */
static void say_worker(struct kvr_reason *t, const char *words, uint64_t id)
{
	kvr_reason_say(t, words);
	if (id != 0)
		kvr_reason_count(t, ": worker ", id);
}

static uint64_t worker_of(const struct request *req, uint32_t leg)
{
	return req != NULL ? req->rq.leg[leg].worker : 0;
}

/* The worker pinned by the client or by its session; 0: none. */
static uint64_t pinned_worker(const struct request *req)
{
	const struct kvr_hints *hints =
		req != NULL && req->job != NULL ? &req->job->msg.hints : NULL;

	if (hints == NULL)
		return 0;
	if ((hints->present & KVR_HAS(KVR_HINT_BACKEND)) != 0)
		return hints->backend_worker;
	if ((hints->present & KVR_HAS(KVR_HINT_DECODE_WORKER)) != 0)
		return hints->decode_worker;
	return (hints->present & KVR_HAS(KVR_HINT_PREFILL_WORKER)) != 0 ? hints->prefill_worker : 0;
}

/* The code does not distinguish a missing worker from one with several ranks. */
static void say_rank_missing(struct kvr_reason *t, const struct pool *pool,
			     const struct request *req)
{
	const struct pool *prefill = pool->prefill;
	const uint64_t id = pinned_worker(req);

	if (id != 0 && kvr_sched_worker_ranks(pool->sched, id) == 0 &&
	    (prefill == NULL || kvr_sched_worker_ranks(prefill->sched, id) == 0)) {
		kvr_reason_say(t, "pool ");
		kvr_reason_say(t, pool->name);
		kvr_reason_count(t, ": the pinned worker is not registered: worker ", id);
		return;
	}
	say_worker(t, "the pinned worker has several ranks; give dp_rank", id);
}

static void say_prefill_failed(struct kvr_reason *t, const struct request *req,
			       const struct rejection *why)
{
	const struct pair *pair = req != NULL && req->job != NULL ? req->job->pair : NULL;

	say_worker(t, kvr_code_text(why->code), worker_of(req, PREFILL));
	kvr_reason_count(t, ", code ", why->detail[0]);
	if (pair != NULL && pair->said[0] != '\0') {
		kvr_reason_say(t, ", engine: ");
		kvr_reason_say(t, pair->said);
	}
}

static void say_expired(struct kvr_reason *t, const struct rejection *why)
{
	static const char *const what[] = {
		[KVR_RQ_DEADLINE] = "the deadline of the request passed",
		[KVR_RQ_SILENT] = "the client stopped sending",
	};
	const uint64_t kind = why->detail[0];

	kvr_reason_say(t, kind == 0 || kind >= RTE_DIM(what) ? kvr_code_text(KVR_E_EXPIRED)
							     : what[kind]);
	if (why->detail[1] != 0)
		kvr_reason_count(t, ", ms: ", why->detail[1]);
}

static void say_no_memory(struct kvr_reason *t, const struct pool *pool)
{
	kvr_reason_say(t, "pool ");
	kvr_reason_say(t, pool->name);
	kvr_reason_count(t, " is full: requests ", kvr_flight_count(pool->requests));
	kvr_reason_count(t, " of ", kvr_flight_size(pool->requests));
	kvr_reason_count(t, ", waiting frames ",
			 atomic_load_explicit(&pool->live.held, memory_order_relaxed));
	kvr_reason_count(t, " of ", pool->max_held);
}

static void say_session_limit(struct kvr_reason *t, const struct pool *pool)
{
	kvr_reason_say(t, "pool ");
	kvr_reason_say(t, pool->name);
	if (pool->sessions == NULL)
		kvr_reason_say(t, " has no sessions; set max_sessions");
	else
		kvr_reason_count(t, ": session limit reached: ", pool->sessions->max);
}

static void say_not_opened(struct kvr_reason *t, const struct request *req,
			   const struct rejection *why)
{
	if (why->retry == RETRY_YES) {
		kvr_reason_say(t, "another request is opening the same session");
		return;
	}
	say_worker(t, "the worker did not open the session", worker_of(req, MAIN));
	if (why->detail[0] != 0)
		kvr_reason_count(t, ", code ", why->detail[0]);
	else
		kvr_reason_say(t, ", no answer");
}

const char *reason_text(const struct pool *pool, const struct request *req,
			const struct rejection *why, char buf[REASON_TEXT])
{
	struct kvr_reason t = kvr_reason_init(buf, REASON_TEXT);

	switch (why->code) {
	case KVR_E_QUEUE_REJECTED:
		say_queue_limit(&t, pool, why);
		break;
	case KVR_E_SOURCE_LIMIT:
		say_source_limit(&t, why);
		break;
	case KVR_E_NO_ENDPOINTS:
		say_no_endpoints(&t, pool, why);
		break;
	case KVR_E_ALL_OVERLOADED:
		say_overloaded(&t, pool);
		break;
	case KVR_E_PINNED_NOT_ALLOWED:
	case KVR_E_PINNED_OVERLOADED:
		say_worker(&t, kvr_code_text(why->code), pinned_worker(req));
		break;
	case KVR_E_DP_RANK_REQUIRED:
		say_rank_missing(&t, pool, req);
		break;
	case KVR_E_DISPATCH_FAILED:
		say_worker(&t, kvr_code_text(why->code), worker_of(req, MAIN));
		kvr_reason_count(&t, ", code ", why->detail[0]);
		break;
	case KVR_E_PREFILL_FAILED:
		say_prefill_failed(&t, req, why);
		break;
	case KVR_E_WORKER_LOST:
		say_worker(&t, kvr_code_text(why->code), why->detail[0]);
		break;
	case KVR_E_EXPIRED:
		say_expired(&t, why);
		break;
	case KVR_E_NO_MEMORY:
		say_no_memory(&t, pool);
		break;
	case KVR_E_SESSION_LIMIT:
		say_session_limit(&t, pool);
		break;
	case KVR_E_SESSION_OPEN_FAILED:
		say_not_opened(&t, req, why);
		break;
	default:
		return NULL;
	}
	return buf;
}
