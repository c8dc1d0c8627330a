/* SPDX-License-Identifier: BSD-3-Clause */
/* Refusals in words. No format functions here: a packet lcore writes its digits itself. */
#include "sched/reason.h"

#include <string.h>

#include "sched/request.h"

struct text {
	char *p;
	uint32_t n;
};

static void say(struct text *t, const char *words)
{
	while (*words != '\0' && t->n + 1 < REASON_TEXT)
		t->p[t->n++] = *words++;
	t->p[t->n] = '\0';
}

static void number(struct text *t, uint64_t v)
{
	char digits[24], *d = digits + sizeof(digits) - 1;

	*d = '\0';
	do {
		*--d = (char)('0' + v % 10);
		v /= 10;
	} while (v != 0);
	say(t, d);
}

/* "words N" */
static void count(struct text *t, const char *words, uint64_t n)
{
	say(t, words);
	number(t, n);
}

static void queue_limit(struct text *t, const struct pool *p, const struct refusal *why)
{
	static const char *const what[] = {"requests", "prompt tokens", "cached tokens"};
	const uint64_t kind = why->detail[0];

	say(t, "policy class ");
	say(t, p->conf->n_classes > why->policy_class ? p->conf->classes[why->policy_class].name
						      : "default");
	count(t, ": ", why->detail[1]);
	say(t, " ");
	say(t, kind >= 1 && kind <= RTE_DIM(what) ? what[kind - 1] : "?");
	count(t, " wait, at most ", why->detail[2]);
}

static void source_limit(struct text *t, const struct refusal *why)
{
	static const char *const what[] = {
		[KVR_SHARE_REQUESTS] = "live requests",
		[KVR_SHARE_WAITING] = "waiting requests",
		[KVR_SHARE_SESSIONS] = "sessions",
	};
	const uint64_t kind = why->detail[0];

	count(t, "this source has ", why->detail[1]);
	say(t, " of ");
	say(t, kind >= KVR_SHARE_REQUESTS && kind < RTE_DIM(what) ? what[kind] : "something");
	count(t, ", may have ", why->detail[2]);
}

static void nobody(struct text *t, const struct pool *p, const struct refusal *why)
{
	say(t, "pool ");
	say(t, p->name);
	count(t, ": no rank can take it; workers ", why->detail[0]);
	count(t, ", ranks ", why->detail[1]);
	count(t, ", open ", why->detail[2]);
}

static void overloaded(struct text *t, const struct pool *p)
{
	uint32_t ranks, open;

	kvr_sched_n_ranks(p->sched, &ranks, &open);
	say(t, "pool ");
	say(t, p->name);
	count(t, ": all eligible ranks are over a threshold; ranks ", ranks);
	count(t, ", open ", open);
}

/* "words: worker W" of a leg. */
static void worker(struct text *t, const char *words, const struct request *r, uint32_t leg)
{
	say(t, words);
	if (r != NULL && r->rq.leg[leg].worker != 0)
		count(t, ": worker ", r->rq.leg[leg].worker);
}

const char *reason_text(const struct pool *p, const struct request *r, const struct refusal *why,
			char buf[REASON_TEXT])
{
	struct text t = {buf, 0};

	buf[0] = '\0';
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
	case KVR_E_DISPATCH_FAILED:
		worker(&t, "the worker refused it", r, MAIN);
		count(&t, ", code ", why->detail[0]);
		break;
	case KVR_E_PREFILL_FAILED:
		worker(&t, "the prefill leg failed", r, PREFILL);
		count(&t, ", code ", why->detail[0]);
		if (r != NULL && r->job != NULL && r->job->pair != NULL &&
		    r->job->pair->said[0] != '\0') {
			say(&t, ", engine: ");
			say(&t, r->job->pair->said);
		}
		break;
	case KVR_E_WORKER_LOST:
		worker(&t, "the worker went with it", r, MAIN);
		break;
	case KVR_E_EXPIRED:
		say(&t, "its deadline, or the age limit of bookings, is over");
		break;
	default:
		return NULL;
	}
	return buf;
}
