/* SPDX-License-Identifier: BSD-3-Clause */
#include "sched_pvt.h"

#include "kvr_test.h"

#define N 512

static struct node nodes[N];
static bool in[N];

static uint32_t naive_best(void)
{
	uint32_t best = NIL;

	for (uint32_t i = 0; i < N; i++)
		if (in[i] && (best == NIL || kvr_sched__before(&nodes[i], &nodes[best])))
			best = i;
	return best;
}

static uint32_t check_dist(uint32_t i)
{
	return i == NIL ? 0 : nodes[i].right.dist + 1;
}

/* Order, shape and links of a subtree; returns how many nodes it has. */
static uint32_t check_heap(uint32_t i, uint32_t up)
{
	const struct tree *l = &nodes[i].left, *r = &nodes[i].right;
	uint32_t sum = 1;

	CU_ASSERT_EQUAL_FATAL(nodes[i].up, up);
	CU_ASSERT_FATAL(up == NIL || !kvr_sched__before(&nodes[i], &nodes[up]));
	CU_ASSERT_FATAL(l->dist >= r->dist);
	CU_ASSERT_EQUAL_FATAL(l->dist, check_dist(l->root));
	CU_ASSERT_EQUAL_FATAL(r->dist, check_dist(r->root));
	if (l->root != NIL)
		sum += check_heap(l->root, i);
	if (r->root != NIL)
		sum += check_heap(r->root, i);
	return sum;
}

static void random_order_agrees_with_a_scan(void)
{
	uint32_t root = NIL, held = 0;
	struct kvr_rand r;

	kvr_rand_init(&r, 3);
	for (uint32_t step = 0; step < 20000; step++) {
		uint32_t i = kvr_rand_below(&r, N);

		if (in[i]) {
			i = kvr_rand_below(&r, 3) == 0 ? root : i; /* any, or the best */
			kvr_sched__heap_del(nodes, &root, i);
			in[i] = false;
			held--;
		} else {
			nodes[i].key = kvr_rand_below(&r, 20);
			nodes[i].strict = kvr_rand_below(&r, 8) == 0;
			nodes[i].seq = step;
			kvr_sched__heap_add(nodes, &root, i);
			in[i] = true;
			held++;
		}
		CU_ASSERT_EQUAL_FATAL(root, naive_best());
		if (step % 50 == 0) {
			CU_ASSERT_EQUAL_FATAL(root == NIL ? 0 : check_heap(root, NIL), held);
		}
	}
}

static void order_is_strict_then_key_then_arrival(void)
{
	struct node a = {.strict = 1, .key = 0, .seq = 9}, b = {.key = 100, .seq = 1};
	struct node c = {.key = 100, .seq = 2};

	CU_ASSERT(kvr_sched__before(&a, &b));
	CU_ASSERT(kvr_sched__before(&b, &c));
	CU_ASSERT_FALSE(kvr_sched__before(&c, &b));
}

int main(void)
{
	CU_TestInfo tests[] = {KVR_CASE(random_order_agrees_with_a_scan),
			       KVR_CASE(order_is_strict_then_key_then_arrival), CU_TEST_INFO_NULL};

	return kvr_test_run("heap", tests);
}
