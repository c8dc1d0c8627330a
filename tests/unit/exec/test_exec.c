/* SPDX-License-Identifier: BSD-3-Clause */
/* The executor without frames: slots, questions, and the orders that the owner gets. */
#include "kvr_exec.h"
#include "kvr_test.h"

#include <string.h>

#include <rte_common.h>

#define SLOTS 2u

static struct kvr_pool_conf conf;
static kvr_cell_t count[KVR_RQC_N];
static struct kvr_rq_pool rq;
static struct kvr_exec_pool pool;
static struct kvr_exec exec;
static const uint64_t hashes[2] = {11, 12};

struct request {
	struct kvr_request r;
	struct kvr_rq_msg msg;
	struct kvr_sched_decision d;
	struct kvr_exec_req exec;
};
static struct request request[SLOTS + 1];

/* What the owner was given. */
static uint32_t n_orders[KVR_RQ_ORDERS_N], n_decided, n_stepped;
static uint16_t rejected;

static bool find_worker(void *arg, const struct kvr_rq_pool *p, uint64_t id,
			struct kvr_rq_worker *out)
{
	RTE_SET_USED(arg);
	RTE_SET_USED(p);
	*out = (struct kvr_rq_worker){.epoch = 1, .dp_size = 1};
	return id == 1;
}

static void score_nothing(void *arg, struct kvr_exec_pool *p, const struct kvr_sched_req *req,
			  struct kvr_sched_overlap *overlap)
{
	static uint32_t none[64];

	RTE_SET_USED(arg);
	RTE_SET_USED(p);
	RTE_SET_USED(req);
	overlap->device = none;
}

static void count_decision(void *arg, struct kvr_exec_req *req, struct kvr_exec_pool *p)
{
	RTE_SET_USED(arg);
	RTE_SET_USED(req);
	CU_ASSERT_PTR_EQUAL(p, &pool);
	n_decided++;
}

static void count_order(void *arg, struct kvr_exec_req *req, const struct kvr_rq_order *order)
{
	RTE_SET_USED(arg);
	RTE_SET_USED(req);
	n_orders[order->kind]++;
	if (order->kind == KVR_RQO_REJECTED)
		rejected = order->why.code;
}

static void count_step(void *arg, struct kvr_exec_req *req)
{
	RTE_SET_USED(arg);
	RTE_SET_USED(req);
	n_stepped++;
}

static const struct kvr_exec_ops ops = {.rq = {.worker = find_worker},
					.score = score_nothing,
					.decided = count_decision,
					.order = count_order,
					.stepped = count_step};

static void begin_exec(const char *key, const char *value)
{
	const struct kvr_sched_worker worker = {
		.id = 1, .dp_size = 1, .max_num_batched_tokens = 100};
	const struct kvr_sched_ops none = {0};
	char err[200];

	kvr_pool_conf_defaults(&conf);
	strcpy(conf.name, "m");
	conf.block_size = 16;
	conf.max_ranks = 64;
	conf.max_requests = SLOTS;
	CU_ASSERT_EQUAL_FATAL(kvr_pool_conf_set(&conf, key, value, err, sizeof(err)), 0);
	memset(&rq, 0, sizeof(rq));
	memset(n_orders, 0, sizeof(n_orders));
	memset(count, 0, sizeof(count));
	n_decided = n_stepped = rejected = 0;
	pool = (struct kvr_exec_pool){0};
	exec = (struct kvr_exec){.ops = &ops};
	kvr_request_pool_init(&rq, &conf, NULL, count);
	CU_ASSERT_EQUAL_FATAL(
		kvr_exec_pool_init(&pool, &rq, kvr_sched_create(&conf, &none, 0), SLOTS), 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(pool.sched);
	CU_ASSERT_EQUAL(kvr_sched_worker_set(pool.sched, &worker, 0), 0);
}

static void end_exec(void)
{
	kvr_sched_destroy(pool.sched);
	kvr_exec_pool_fini(&pool);
}

static void submit_request(uint32_t i)
{
	struct request *q = &request[i];

	*q = (struct request){.msg = {.req = {.sh = hashes, .n = 2, .isl = 40}}};
	kvr_exec_req_init(&q->exec, &pool, &q->r, &q->msg, &q->d);
	kvr_exec_arrive(&exec, &q->exec, NULL);
}

static void step_request(uint32_t i, struct kvr_rq_event e)
{
	kvr_exec_step(&exec, &request[i].exec, &e);
}

static void finish_leg(uint32_t i)
{
	step_request(i, (struct kvr_rq_event){.kind = KVR_RQE_TAKEN});
	step_request(i, (struct kvr_rq_event){
				.kind = KVR_RQE_FIN, .flags = KVR_RQEF_FIRST, .tokens = 1});
	step_request(i, (struct kvr_rq_event){.kind = KVR_RQE_LINGERED});
}

static void a_finished_request_leaves_no_booking_and_no_slot(void)
{
	begin_exec("router_mode", "kv");
	submit_request(0);
	CU_ASSERT_EQUAL(n_orders[KVR_RQO_SEND], 1);
	CU_ASSERT_EQUAL(request[0].d.result, KVR_SCHED_ROUTED);
	CU_ASSERT_PTR_EQUAL(pool.by_slot[request[0].exec.slot[KVR_LEG_MAIN]], &request[0].exec);
	CU_ASSERT_EQUAL(kvr_sched_counters(pool.sched)->booked_now, 1);
	finish_leg(0);
	CU_ASSERT_EQUAL(kvr_sched_counters(pool.sched)->booked_now, 0);
	CU_ASSERT_EQUAL(request[0].exec.slot[KVR_LEG_MAIN], KVR_EXEC_NO_SLOT);
	CU_ASSERT_EQUAL(pool.n_free, SLOTS);
	CU_ASSERT_EQUAL(n_orders[KVR_RQO_DONE], 1);
	CU_ASSERT_TRUE(n_decided == 1 && n_stepped == 4);
	CU_ASSERT_EQUAL(n_orders[KVR_RQO_DECIDE] + n_orders[KVR_RQO_FREE] +
				n_orders[KVR_RQO_RELEASE],
			0); /* the executor's own */
	end_exec();
}

static void a_request_without_a_slot_is_rejected(void)
{
	begin_exec("router_mode", "kv");
	for (uint32_t i = 0; i <= SLOTS; i++)
		submit_request(i);
	CU_ASSERT_EQUAL(n_orders[KVR_RQO_SEND], SLOTS);
	CU_ASSERT_EQUAL(n_orders[KVR_RQO_REJECTED], 1);
	CU_ASSERT_EQUAL(rejected, KVR_E_NO_MEMORY);
	end_exec();
}

static void a_queued_request_is_admitted_when_its_rank_is_free(void)
{
	begin_exec("router_queue_threshold", "0.1");
	submit_request(0);
	submit_request(1);
	CU_ASSERT_EQUAL(request[1].d.result, KVR_SCHED_QUEUED);
	kvr_exec_admit(&exec, &pool);
	CU_ASSERT_EQUAL(n_orders[KVR_RQO_SEND], 1);
	finish_leg(0);
	kvr_exec_admit(&exec, &pool);
	CU_ASSERT_EQUAL(request[1].d.result, KVR_SCHED_ROUTED);
	CU_ASSERT_EQUAL(n_orders[KVR_RQO_SEND], 2);
	CU_ASSERT_EQUAL(n_decided, 3);
	end_exec();
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(a_finished_request_leaves_no_booking_and_no_slot),
			       KVR_CASE(a_request_without_a_slot_is_rejected),
			       KVR_CASE(a_queued_request_is_admitted_when_its_rank_is_free),
			       CU_TEST_INFO_NULL};

	return kvr_test_run("executor", tests);
}
