/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Leftist heaps linked through slots (Crane 1972): the shorter path to a missing child is always
 * on the right, so merging and removing any node visit O(log n) nodes. A node stores the distances
 * of its children, so that a walk reads only the nodes of its path.
 */
#include "sched_pvt.h"

static const struct tree empty = {.root = NIL};

/* Section 7.2: strict priority, then key, then arrival. Branch prediction fails for the keys only.
 */
static inline bool comes_before(const struct node *a, const struct node *b)
{
	if (__builtin_expect(a->strict != b->strict, 0))
		return a->strict > b->strict;
	if (__builtin_expect(a->key == b->key, 0))
		return a->seq < b->seq;
	return a->key > b->key;
}

bool kvr_sched__before(const struct node *a, const struct node *b)
{
	return comes_before(a, b);
}

/* Put the longer side on the left and return the tree. */
static struct tree swap_children(struct node *n, uint32_t i)
{
	struct node *x = &n[i];
	const struct tree l = x->left, r = x->right;
	const bool turn = l.dist < r.dist;

	x->left = turn ? r : l;
	x->right = turn ? l : r;
	return (struct tree){i, x->right.dist + 1};
}

static void attach_child(struct node *n, struct tree t, uint32_t up)
{
	if (t.root != NIL)
		n[t.root].up = up;
}

/* Merge two heaps without recursion: down the right spines, then up again swapping children. */
static struct tree merge_heaps(struct node *n, struct tree a, struct tree b)
{
	uint32_t last = NIL;

	while (a.root != NIL && b.root != NIL) {
		const bool turn = comes_before(&n[b.root], &n[a.root]);
		const struct tree top = turn ? b : a;

		b = turn ? a : b;
		n[top.root].up = last;
		if (last != NIL)
			n[last].right.root = top.root;
		last = top.root;
		a = n[last].right;
	}
	a = a.root == NIL ? b : a;
	attach_child(n, a, last);
	while (last != NIL) {
		n[last].right = a;
		a = swap_children(n, last);
		last = n[last].up;
	}
	return a;
}

/* Replace `child` below `up` by `sub`; go up as long as a distance changes. */
static void replace_child(struct node *n, uint32_t up, uint32_t child, struct tree sub)
{
	while (up != NIL) {
		const uint32_t was = n[up].right.dist;

		if (n[up].right.root == child)
			n[up].right = sub;
		else
			n[up].left = sub;
		sub = swap_children(n, up);
		if (n[up].right.dist == was)
			return;
		child = up;
		up = n[up].up;
	}
}

/* Descend the right spine to the first node that comes later; it becomes a child of the new node.
 */
void kvr_sched__heap_add(struct node *n, uint32_t *root, uint32_t i)
{
	struct tree below = {*root, *root == NIL ? 0 : n[*root].right.dist + 1};
	uint32_t up = NIL;

	while (below.root != NIL && !comes_before(&n[i], &n[below.root])) {
		up = below.root;
		below = n[up].right;
	}
	n[i].up = up;
	n[i].left = below;
	n[i].right = empty;
	attach_child(n, below, i);
	if (up == NIL)
		*root = i;
	else
		replace_child(n, up, below.root, (struct tree){i, 1});
}

void kvr_sched__heap_del(struct node *n, uint32_t *root, uint32_t i)
{
	struct tree sub = merge_heaps(n, n[i].left, n[i].right);

	attach_child(n, sub, n[i].up);
	if (n[i].up == NIL)
		*root = sub.root;
	else
		replace_child(n, n[i].up, i, sub);
}
