package deploy_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// manifests is what deploy/kubernetes creates.
type manifests struct {
	config      core.ConfigMap
	service     core.Service
	disruption  policy.PodDisruptionBudget
	statefulSet apps.StatefulSet
	firstKey    core.Pod
}

// decode fails for a field that Kubernetes does not know, and for a kind that is missing or there twice.
func decode(t *testing.T) *manifests {
	t.Helper()
	var m manifests
	into := map[string]any{
		"v1 ConfigMap": &m.config, "v1 Service": &m.service, "policy/v1 PodDisruptionBudget": &m.disruption,
		"apps/v1 StatefulSet": &m.statefulSet, "v1 Pod": &m.firstKey,
	}
	text := read(t, "deploy/kubernetes/agentd.yaml") + "\n---\n" + read(t, "deploy/kubernetes/first-key.yaml")
	for document := range strings.SplitSeq(text, "\n---\n") {
		var head struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			t.Fatal(err)
		}
		kind := head.APIVersion + " " + head.Kind
		target, ok := into[kind]
		if !ok {
			t.Fatalf("%s: want each of %q once", kind, slices.Sorted(maps.Keys(into)))
		}
		delete(into, kind)
		text, err := yaml.YAMLToJSONStrict([]byte(document))
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		// As the API server does: fields are case-sensitive.
		unknown, err := json.UnmarshalStrict(text, target)
		for _, err := range append(unknown, err) {
			if err != nil {
				t.Errorf("%s: %v", kind, err)
			}
		}
	}
	if len(into) > 0 {
		t.Fatalf("missing: %q", slices.Sorted(maps.Keys(into)))
	}
	return &m
}

// podSettings are the settings of a pod's only container; its files are at the paths of the pod, below a folder.
func podSettings(t *testing.T, spec core.PodSpec, config core.ConfigMap) map[string]setting {
	t.Helper()
	if len(spec.Containers) != 1 {
		t.Fatalf("%d containers, want one", len(spec.Containers))
	}
	container := spec.Containers[0]
	env, names := imageEnv(t), []string{}
	for _, v := range container.Env {
		names = append(names, v.Name)
		if v.ValueFrom == nil {
			env[v.Name] = v.Value
		}
	}
	if path := env["AGENTD_CONFIG"]; path != "" {
		mounted := slices.ContainsFunc(container.VolumeMounts, func(m core.VolumeMount) bool { return m.MountPath == filepath.Dir(path) })
		text, ok := config.Data[filepath.Base(path)]
		if !mounted || !ok {
			t.Fatalf("AGENTD_CONFIG is %s, which is no mounted file of the ConfigMap", path)
		}
		env["AGENTD_CONFIG"] = filepath.Join(t.TempDir(), filepath.Base(path))
		if err := os.WriteFile(env["AGENTD_CONFIG"], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	settings := effective(t, container.Args, env)
	knownVariables(t, settings, names)
	return settings
}

func TestKubernetes(t *testing.T) {
	t.Parallel()
	m := decode(t)
	spec := m.statefulSet.Spec.Template.Spec
	settings := podSettings(t, spec, m.config)
	if spec.TerminationGracePeriodSeconds == nil {
		t.Fatal("no terminationGracePeriodSeconds")
	}
	closed(t, settings, time.Duration(*spec.TerminationGracePeriodSeconds)*time.Second)
	if s := settings["log_format"]; s.Value != "json" || !strings.Contains(s.Source, "agentd.yaml") {
		t.Errorf("log_format is %+v, want json of the ConfigMap", s)
	}
	if n := m.statefulSet.Spec.Replicas; n == nil || *n != 1 {
		t.Error("want one replica: a database has one daemon")
	}
	container := spec.Containers[0]
	for name, probe := range map[string]*core.Probe{"/readyz startup": container.StartupProbe, "/readyz readiness": container.ReadinessProbe,
		"/healthz liveness": container.LivenessProbe} {
		path, _, _ := strings.Cut(name, " ")
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != path || probe.HTTPGet.Port.String() != "http" {
			t.Errorf("%s: %+v, want the port http and its path", name, probe)
		}
	}
	if want := fmt.Sprintf(":%d", container.Ports[0].ContainerPort); settings["addr"].Value != want {
		t.Errorf("the container listens on %s, its port is %s", settings["addr"].Value, want)
	}
}

func TestKubernetesFits(t *testing.T) {
	t.Parallel()
	m := decode(t)
	set := m.statefulSet.Spec
	for name, selector := range map[string]map[string]string{
		"the service": m.service.Spec.Selector, "the disruption budget": m.disruption.Spec.Selector.MatchLabels,
		"the set": set.Selector.MatchLabels,
		"the first key's affinity": m.firstKey.Spec.Affinity.PodAffinity.
			RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchLabels,
	} {
		if !matches(selector, set.Template.Labels) {
			t.Errorf("%s selects %v, the pods of the set have %v", name, selector, set.Template.Labels)
		}
		if matches(selector, m.firstKey.Labels) {
			t.Errorf("%s selects %v, and so the pod of the first key", name, selector)
		}
	}
	if m.service.Name != set.ServiceName || m.service.Spec.Ports[0].TargetPort.String() != set.Template.Spec.Containers[0].Ports[0].Name {
		t.Errorf("the service %s at port %v is not the set's", m.service.Name, m.service.Spec.Ports)
	}
	claim := set.VolumeClaimTemplates[0].Name
	if got, want := m.firstKey.Spec.Volumes[0].PersistentVolumeClaim.ClaimName, claim+"-"+m.statefulSet.Name+"-0"; got != want {
		t.Errorf("the first key is made on the volume %s, want %s", got, want)
	}
	if got, want := m.firstKey.Spec.Containers[0].Image, set.Template.Spec.Containers[0].Image; got != want {
		t.Errorf("the first key is made by %s, the set runs %s", got, want)
	}
	// The pod of the first key must start without a key, and be reached by nobody.
	if s := podSettings(t, m.firstKey.Spec, m.config)["addr"]; s.Value != "127.0.0.1:8080" {
		t.Errorf("the first key's server listens on %+v, want loopback alone", s)
	}
}

func TestKubernetesIsConfined(t *testing.T) {
	t.Parallel()
	m := decode(t)
	for name, spec := range map[string]core.PodSpec{"set": m.statefulSet.Spec.Template.Spec, "first key": m.firstKey.Spec} {
		pod, container := spec.SecurityContext, spec.Containers[0]
		if pod == nil || container.SecurityContext == nil {
			t.Fatalf("%s: no security context", name)
		}
		if ids := []*int64{pod.RunAsUser, pod.RunAsGroup, pod.FSGroup}; slices.Contains(ids, nil) ||
			fmt.Sprintf("%d:%d", *pod.RunAsUser, *pod.RunAsGroup) != imageUser(t) || *pod.FSGroup != *pod.RunAsGroup {
			t.Errorf("%s: user, group and fsGroup are not the image's %s", name, imageUser(t))
		}
		own := container.SecurityContext
		for rule, kept := range map[string]bool{
			"runAsNonRoot":              is(pod.RunAsNonRoot, true),
			"seccomp RuntimeDefault":    pod.SeccompProfile != nil && pod.SeccompProfile.Type == core.SeccompProfileTypeRuntimeDefault,
			"a read-only file system":   is(own.ReadOnlyRootFilesystem, true),
			"no privilege escalation":   is(own.AllowPrivilegeEscalation, false),
			"no capability":             own.Capabilities != nil && slices.Equal(own.Capabilities.Drop, []core.Capability{"ALL"}) && own.Capabilities.Add == nil,
			"no token of the cluster":   is(spec.AutomountServiceAccountToken, false),
			"no variables of services":  is(spec.EnableServiceLinks, false),
			"a limit of memory":         !container.Resources.Limits.Memory().IsZero(),
			"a folder for data, /tmp":   mounts(container, imageEnv(t)["AGENTD_DATA"]) && mounts(container, "/tmp"),
			"nothing of the node's own": !spec.HostNetwork && !spec.HostPID && !spec.HostIPC,
		} {
			if !kept {
				t.Errorf("%s: want %s", name, rule)
			}
		}
	}
}

func matches(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return len(selector) > 0
}

func mounts(c core.Container, path string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return m.MountPath == path && !m.ReadOnly })
}

func is(got *bool, want bool) bool { return got != nil && *got == want }
