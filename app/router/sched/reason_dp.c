/* SPDX-License-Identifier: BSD-3-Clause */
/* Texts of rejections, with knowledge of the pool and the request besides the code. */
#include "sched/reason.h"

#include "sched/request.h"
#include "sched/session.h"

static void queue_limit(struct kvr_reason *t, const struct pool *p, const struct refusal *why)
{
	static const char *const what[] = {"requests", "prompt tokens", "cached tokens"};
	const uint64_t kind = why->detail[0];

	kvr_reason_say(t, "policy class ");
	kvr_reason_say(t, p->conf->n_classes > why->policy_class
				  ? p->conf->classes[why->policy_class].name
				  : "default");
	kvr_reason_count(t, ": ", why->detail[1]);
	kvr_reason_say(t, " ");
	kvr_reason_say(t, kind >= 1 && kind <= RTE_DIM(what) ? what[kind - 1] : "?");
	kvr_reason_count(t, " waiting, limit ", why->detail[2]);
}

static void source_limit(struct kvr_reason *t, const struct refusal *why)
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

static void nobody(struct kvr_reason *t, const struct pool *p, const struct refusal *why)
{
	kvr_reason_say(t, "pool ");
	kvr_reason_say(t, p->name);
	kvr_reason_count(t, ": no eligible rank; workers ", why->detail[0]);
	kvr_reason_count(t, ", ranks ", why->detail[1]);
	kvr_reason_count(t, ", open ", why->detail[2]);
}

static void overloaded(struct kvr_reason *t, const struct pool *p)
{
	uint32_t ranks, open;

	kvr_sched_n_ranks(p->sched, &ranks, &open);
	kvr_reason_say(t, "pool ");
	kvr_reason_say(t, p->name);
	kvr_reason_count(t, ": all eligible ranks exceed a threshold; ranks ", ranks);
	kvr_reason_count(t, ", open ", open);
}

/* "words: worker W". */
static void worker(struct kvr_reason *t, const char *words, uint64_t id)
{
	kvr_reason_say(t, words);
	if (id != 0)
		kvr_reason_count(t, ": worker ", id);
}

static uint64_t worker_of(const struct request *r, uint32_t leg)
{
	return r != NULL ? r->rq.leg[leg].worker : 0;
}

/* The worker pinned by the client or by its session; 0: none. */
static uint64_t pinned(const struct request *r)
{
	const struct kvr_hints *h = r != NULL && r->job != NULL ? &r->job->msg.hints : NULL;

	if (h == NULL)
		return 0;
	if ((h->present & KVR_HAS(KVR_HINT_BACKEND)) != 0)
		return h->backend_worker;
	if ((h->present & KVR_HAS(KVR_HINT_DECODE_WORKER)) != 0)
		return h->decode_worker;
	return (h->present & KVR_HAS(KVR_HINT_PREFILL_WORKER)) != 0 ? h->prefill_worker : 0;
}

/* The code does not distinguish a missing worker from one with several ranks. */
static void rank_missing(struct kvr_reason *t, const struct pool *p, const struct request *r)
{
	const struct pool *prefill = p->prefill;
	const uint64_t id = pinned(r);

	if (id != 0 && kvr_sched_worker_ranks(p->sched, id) == 0 &&
	    (prefill == NULL || kvr_sched_worker_ranks(prefill->sched, id) == 0)) {
		kvr_reason_say(t, "pool ");
		kvr_reason_say(t, p->name);
		kvr_reason_count(t, ": the pinned worker is not registered: worker ", id);
		return;
	}
	worker(t, "the pinned worker has several ranks; give dp_rank", id);
}

static void prefill_failed(struct kvr_reason *t, const struct request *r, const struct refusal *why)
{
	const struct pair *l = r != NULL && r->job != NULL ? r->job->pair : NULL;

	worker(t, kvr_code_text(why->code), worker_of(r, PREFILL));
	kvr_reason_count(t, ", code ", why->detail[0]);
	if (l != NULL && l->said[0] != '\0') {
		kvr_reason_say(t, ", engine: ");
		kvr_reason_say(t, l->said);
	}
}

static void expired(struct kvr_reason *t, const struct refusal *why)
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

static void no_memory(struct kvr_reason *t, const struct pool *p)
{
	kvr_reason_say(t, "pool ");
	kvr_reason_say(t, p->name);
	kvr_reason_count(t, " is full: requests ", kvr_flight_count(p->requests));
	kvr_reason_count(t, " of ", kvr_flight_size(p->requests));
	kvr_reason_count(t, ", waiting frames ",
			 atomic_load_explicit(&p->live.held, memory_order_relaxed));
	kvr_reason_count(t, " of ", p->max_held);
}

static void session_limit(struct kvr_reason *t, const struct pool *p)
{
	kvr_reason_say(t, "pool ");
	kvr_reason_say(t, p->name);
	if (p->sessions == NULL)
		kvr_reason_say(t, " has no sessions; set max_sessions");
	else
		kvr_reason_count(t, ": session limit reached: ", p->sessions->max);
}

static void not_opened(struct kvr_reason *t, const struct request *r, const struct refusal *why)
{
	if (why->retry == RETRY_YES) {
		kvr_reason_say(t, "another request is opening the same session");
		return;
	}
	worker(t, "the worker did not open the session", worker_of(r, MAIN));
	if (why->detail[0] != 0)
		kvr_reason_count(t, ", code ", why->detail[0]);
	else
		kvr_reason_say(t, ", no answer");
}

const char *reason_text(const struct pool *p, const struct request *r, const struct refusal *why,
			char buf[REASON_TEXT])
{
	struct kvr_reason t = kvr_reason_init(buf, REASON_TEXT);

	switch (why->code) {
	case KVR_E_QUEUE_REJECTED:
		queue_limit(&t, p, why);
		break;
	case KVR_E_SOURCE_LIMIT:
		source_limit(&t, why);
		break;
	case KVR_E_NO_ENDPOINTS:
		nobody(&t, p, why);
		break;
	case KVR_E_ALL_OVERLOADED:
		overloaded(&t, p);
		break;
	case KVR_E_PINNED_NOT_ALLOWED:
	case KVR_E_PINNED_OVERLOADED:
		worker(&t, kvr_code_text(why->code), pinned(r));
		break;
	case KVR_E_DP_RANK_REQUIRED:
		rank_missing(&t, p, r);
		break;
	case KVR_E_DISPATCH_FAILED:
		worker(&t, kvr_code_text(why->code), worker_of(r, MAIN));
		kvr_reason_count(&t, ", code ", why->detail[0]);
		break;
	case KVR_E_PREFILL_FAILED:
		prefill_failed(&t, r, why);
		break;
	case KVR_E_WORKER_LOST:
		worker(&t, kvr_code_text(why->code), why->detail[0]);
		break;
	case KVR_E_EXPIRED:
		expired(&t, why);
		break;
	case KVR_E_NO_MEMORY:
		no_memory(&t, p);
		break;
	case KVR_E_SESSION_LIMIT:
		session_limit(&t, p);
		break;
	case KVR_E_SESSION_OPEN_FAILED:
		not_opened(&t, r, why);
		break;
	default:
		return NULL;
	}
	return buf;
}
