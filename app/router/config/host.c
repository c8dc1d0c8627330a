/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks of the host before the start: memory, drivers, capabilities, devices. */
#include "config/host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_config.h>
#include <rte_pci.h>

#define MIB 1048576u

void host_std_files(void)
{
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
			(void)!open("/dev/null",
				    fd == 0 ? O_RDONLY : O_WRONLY); /* opens as number fd */
}

/* ---- memory ---- */

/* The number in a file, or in its line that begins with @key; UINT64_MAX: none. */
static uint64_t number_in(const char *path, const char *key)
{
	FILE *f = fopen(path, "re");
	uint64_t n = UINT64_MAX;
	char line[256];

	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (strncmp(line, key, strlen(key)) == 0 &&
		    sscanf(line + strlen(key), "%" SCNu64, &n) == 1)
			break;
	if (f != NULL)
		fclose(f);
	return n;
}

static uint64_t free_hugepages_mb(void)
{
	DIR *d = opendir("/sys/kernel/mm/hugepages");
	struct dirent *e;
	uint64_t mb = 0;

	while (d != NULL && (e = readdir(d)) != NULL) {
		unsigned long kb;
		char path[320];
		uint64_t n;

		if (sscanf(e->d_name, "hugepages-%lukB", &kb) != 1)
			continue;
		snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/%s/free_hugepages",
			 e->d_name);
		n = number_in(path, "");
		mb += n == UINT64_MAX ? 0 : n * kb / 1024;
	}
	if (d != NULL)
		closedir(d);
	return mb;
}

/* Memory left in one control group: its limit minus its use, without reclaimable file pages. */
static uint64_t group_left_mb(const char *folder, const char *limit, const char *use,
			      const char *inactive)
{
	char path[640];
	uint64_t max, now, file;

	snprintf(path, sizeof(path), "%s/%s", folder, limit);
	max = number_in(path, "");
	if (max == UINT64_MAX || max > UINT64_C(1) << 60)
		return UINT64_MAX;
	snprintf(path, sizeof(path), "%s/%s", folder, use);
	now = number_in(path, "");
	snprintf(path, sizeof(path), "%s/memory.stat", folder);
	file = number_in(path, inactive);
	now = now == UINT64_MAX ? 0 : now;
	now -= file == UINT64_MAX || file > now ? 0 : file;
	return max > now ? (max - now) / MIB : 0;
}

/* The minimum over all groups from ours to the root. */
static uint64_t walk_groups(const char *mount, char *group, const char *limit, const char *use,
			    const char *inactive)
{
	uint64_t least = UINT64_MAX;

	for (;;) {
		char folder[600];
		uint64_t left;
		char *cut;

		snprintf(folder, sizeof(folder), "%s%s", mount, group);
		left = group_left_mb(folder, limit, use, inactive);
		least = left < least ? left : least;
		cut = strrchr(group, '/');
		if (cut == NULL || group[0] == '\0')
			return least;
		*cut = '\0';
	}
}

static uint64_t cgroup_left_mb(void)
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	uint64_t least = UINT64_MAX, left;
	char line[512];

	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		char *control = strchr(line, ':'), *group;

		line[strcspn(line, "\n")] = '\0';
		group = control != NULL ? strchr(control + 1, ':') : NULL;
		if (group == NULL)
			continue;
		*group++ = '\0';
		control++;
		if (control[0] == '\0') /* version 2 */
			left = walk_groups("/sys/fs/cgroup", group, "memory.max", "memory.current",
					   "inactive_file ");
		else if (strstr(control, "memory") != NULL)
			left = walk_groups("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes",
					   "memory.usage_in_bytes", "total_inactive_file ");
		else
			continue;
		least = left < least ? left : least;
	}
	if (f != NULL)
		fclose(f);
	return least;
}

void host_memory(struct host_memory *out)
{
	const uint64_t kb = number_in("/proc/meminfo", "MemAvailable:");

	out->available_mb = kb == UINT64_MAX ? kb : kb / 1024;
	out->cgroup_mb = cgroup_left_mb();
	out->huge_mb = free_hugepages_mb();
}

/* ---- devices ---- */

static int no_device(char *err, size_t errlen, const char *kind, const char *name,
		     const char *remedy)
{
	snprintf(err, errlen, "device: no such %s: \"%s\", allowed: %s", kind, name, remedy);
	return -ENODEV;
}

/* librte_net_NAME.so, perhaps with a version suffix, drives devices whose name begins with NAME, of
 * at least two letters. */
static bool driver_matches(const char *file, const char *device)
{
	static const char before[] = "librte_net_", behind[] = ".so";
	const char *name = file + sizeof(before) - 1, *end;

	if (strncmp(file, before, sizeof(before) - 1) != 0)
		return false;
	end = strstr(name, behind);
	return end != NULL && end - name > 1 && strncmp(device, name, (size_t)(end - name)) == 0;
}

/* The drivers of the packaged DPDK are libraries in one folder, with a few exceptions in naming. */
static bool have_driver(const char *device)
{
#ifdef RTE_EAL_PMD_PATH
	static const char *const others[][2] = {
		{"tun", "tap"}, {"virtio_user", "virtio"}, {"bonding", "bond"}};
	const char *name = device + strlen("net_");
	bool found = false;
	struct dirent *e;
	DIR *folder;

	if (access(RTE_EAL_PMD_PATH, R_OK) != 0)
		return true; /* linked statically, or installed elsewhere */
	folder = opendir(RTE_EAL_PMD_PATH);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (strncmp(name, others[i][0], strlen(others[i][0])) == 0)
			name = others[i][1];
	while (!found && folder != NULL && (e = readdir(folder)) != NULL)
		found = driver_matches(e->d_name, name);
	if (folder != NULL)
		closedir(folder);
	return found;
#else
	return device != NULL;
#endif
}

int host_driver(const char *device, char *err, size_t errlen)
{
	char name[64];

	snprintf(name, sizeof(name), "%s", device);
	name[strcspn(name, ",")] = '\0';
	if (strncmp(device, "net_", 4) != 0 || have_driver(device))
		return 0;
	return no_device(
		err, errlen, "driver of the device", name,
		"net_memif0, net_af_packet0, net_af_xdp0, net_tap0 and others of the installed DPDK, or a PCI address");
}

/* Capabilities required by drivers for kernel interfaces; 0: none. */
static uint64_t capabilities_of_device(const char *device, const char **names)
{
	static const struct {
		const char *driver, *names;
		uint64_t mask;
	} all[] = {
		{"net_af_packet", "CAP_NET_RAW", 1u << 13},
		{"net_af_xdp", "CAP_NET_RAW and CAP_NET_ADMIN", 1u << 13 | 1u << 12},
		{"net_tap", "CAP_NET_ADMIN", 1u << 12},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (strncmp(device, all[i].driver, strlen(all[i].driver)) == 0) {
			*names = all[i].names;
			return all[i].mask;
		}
	return 0;
}

static int check_capabilities(const char *device, char *err, size_t errlen)
{
	const char *names = "";
	const uint64_t want = capabilities_of_device(device, &names);
	FILE *f = want != 0 ? fopen("/proc/self/status", "re") : NULL;
	uint64_t have = UINT64_MAX;
	char line[128];

	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "CapEff: %" SCNx64, &have) == 1)
			break;
	if (f != NULL)
		fclose(f);
	if ((have & want) == want)
		return 0;
	snprintf(
		err, errlen,
		"device: %.*s needs %s, which this process lacks; run as root, set the capabilities with \"setcap\", or set AmbientCapabilities of the service",
		(int)strcspn(device, ","), device, names);
	return -EPERM;
}

int host_device(const char *device, char *err, size_t errlen)
{
	const char *iface = strstr(device, "iface=");
	char name[64], path[128];
	struct rte_pci_addr pci;

	if (check_capabilities(device, err, errlen) < 0)
		return -EPERM;
	/* The tap driver creates its interface. */
	if (iface != NULL &&
	    (strncmp(device, "net_af_packet", 13) == 0 || strncmp(device, "net_af_xdp", 10) == 0)) {
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(iface + 6, ","), iface + 6);
		if (if_nametoindex(name) == 0)
			return no_device(err, errlen, "interface", name,
					 "one that \"ip link\" lists, with iface=NAME");
	}
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(device, ","), device);
	if (rte_pci_addr_parse(name, &pci) == 0) {
		snprintf(path, sizeof(path), "/sys/bus/pci/devices/" PCI_PRI_FMT, pci.domain,
			 pci.bus, pci.devid, pci.function);
		if (access(path, F_OK) != 0)
			return no_device(err, errlen, "PCI device", name,
					 "one that \"lspci -D\" lists");
	}
	return 0;
}
