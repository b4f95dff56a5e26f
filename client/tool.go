package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Limits of a tool's declaration; the server has the same.
const (
	maxDescription = 16384
	maxSchema      = 32768
)

var toolName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.:-]{0,63}$`)

// Causes with which a tool handler's context ends; see context.Cause.
var (
	// ErrToolCanceled: the server no longer wants the call.
	ErrToolCanceled = errors.New("the tool call was canceled")
	// ErrToolTimeout: the call took longer than its tool timeout.
	ErrToolTimeout = errors.New("the tool call timed out")
	// ErrRunEnded: the run that asked for the call is over.
	ErrRunEnded = errors.New("the run is over")
)

// ToolHolder is what tools are added to: a [Client] or a [ToolSet].
type ToolHolder interface {
	toolSet() *ToolSet
}

// ToolSet is a set of tools, for [WithTools] and [WithAttachment]. It may be
// used concurrently. A run sees the tools that are in it when the run starts.
type ToolSet struct {
	mu     sync.Mutex       // protects the fields below
	byName map[string]*tool // the tools themselves are immutable
	err    error            // why an Add failed; runs report it, in case nobody else did
	// alone are asked before a goal begins that has these tools.
	alone []func() error
}

// NewToolSet returns an empty set.
func NewToolSet() *ToolSet { return &ToolSet{byName: make(map[string]*tool)} }

func (s *ToolSet) toolSet() *ToolSet { return s }

// add puts t into the set, or records why not.
func (s *ToolSet) add(t *tool, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && s.byName[t.proto.GetName()] != nil {
		err = fmt.Errorf("tool %q is added twice", t.proto.GetName())
	}
	if err != nil {
		s.err = errors.Join(s.err, err)
		return errorf(ErrInvalidRequest, "%w", err)
	}
	s.byName[t.proto.GetName()] = t
	return nil
}

// Replace has the set hold the tools of another one in place of its own, for runs that start from then on.
func (s *ToolSet) Replace(with *ToolSet) {
	byName := make(map[string]*tool)
	err := with.copyTo(byName)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byName, s.err = byName, err
}

// Unattended has [Client.StartGoal], and what else makes a [Goal], call check before it sends anything, and fail with
// its error: the tools cannot work where nobody is there to be asked.
func (s *ToolSet) Unattended(check func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alone = append(s.alone, check)
}

// checkUnattended returns why the tools cannot work without anybody.
func (s *ToolSet) checkUnattended() error {
	s.mu.Lock()
	checks := s.alone
	s.mu.Unlock()
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// copyTo adds the set's tools to dst and returns why an Add failed, if one did.
func (s *ToolSet) copyTo(dst map[string]*tool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(dst, s.byName)
	return s.err
}

// tool is one tool; immutable.
type tool struct {
	proto   *agentdv1.Tool
	timeout time.Duration // 0: the run's
	invoke  func(context.Context, string) (any, error)
}

// ToolOption configures one tool.
type ToolOption func(*toolConfig)

type toolConfig struct {
	timeout *time.Duration // nil: the run's
	schema  string
	approve bool
	defers  bool
	effect  Effect
}

// ToolTimeout bounds each call of the tool, by more than 0 and at most a day; see
// [WithToolTimeout].
func ToolTimeout(d time.Duration) ToolOption {
	return func(c *toolConfig) { c.timeout = &d }
}

// NeedsApproval has each call of the tool wait until a person has approved it,
// maybe with other arguments; see [WithPrompter]. The model learns of a denial.
func NeedsApproval() ToolOption {
	return func(c *toolConfig) { c.approve = true }
}

// Deferred hides the tool from the model until the model has looked for it: with the
// builtin tool tool_search, which some providers run, or with another tool that returns
// a [ToolReference], which works with all models. The agent then needs one of
// the two. For agents with many tools.
func Deferred() ToolOption {
	return func(c *toolConfig) { c.defers = true }
}

// Effect is what a tool does to the world.
type Effect = agentdv1.Tool_Effect

// Effects. The zero value is that it is not known, which counts as an effect.
const (
	EffectRead     = agentdv1.Tool_EFFECT_READ     // it only reads
	EffectWrite    = agentdv1.Tool_EFFECT_WRITE    // it changes files or data
	EffectExecute  = agentdv1.Tool_EFFECT_EXECUTE  // it runs programs
	EffectNetwork  = agentdv1.Tool_EFFECT_NETWORK  // it asks another computer
	EffectInternal = agentdv1.Tool_EFFECT_INTERNAL // it changes nothing but what is the agent's own, such as its plan
)

// ToolEffect says what a call of the tool does; nothing checks it. See [WithPlanMode].
func ToolEffect(e Effect) ToolOption {
	return func(c *toolConfig) { c.effect = e }
}

// ToolSchema declares the arguments by a JSON Schema (an object) in place of
// the one derived from the argument type, whose arguments are checked against it;
// its references must be local.
func ToolSchema(schema string) ToolOption {
	return func(c *toolConfig) { c.schema = schema }
}

// AddTool offers fn to agents that list name in their tool_names.
//
// The JSON Schema of the arguments comes from In, a struct or a map with string
// keys: json tags name the properties, omitempty or omitzero makes one
// optional, a jsonschema tag describes it. For arguments that do not fit the
// model receives an error that says which property is wrong; fn is
// not called. Numbers decode exactly; in a field of type any they are
// json.Number.
//
// fn's result may be a string, []byte or json.RawMessage, sent as they are, a
// proto.Message, sent as its JSON form, or anything that encoding/json
// encodes; a [ToolOutput] has one of these and images or other files behind it.
// Out is inferred from fn, so it need not be given: AddTool[In](…). [CallFrom] tells
// fn which call it runs for, and reads and sets session state.
//
// An error becomes a tool error that the model sees, with its text. So does a
// panic, without its stack. fn is called on its own goroutine, concurrently with
// other calls and with itself; it should return soon after its context ends. The
// cause of that is one of [ErrToolCanceled], [ErrToolTimeout] and [ErrRunEnded],
// or the caller's own.
//
// AddTool fails with INVALID_REQUEST for a name that does not match
// [A-Za-z_][A-Za-z0-9_.:-]{0,63} or is taken, for a description that is empty
// or longer than 16,384 bytes, and for a type without a schema, or with one of
// more than 32,768 bytes. If the error is ignored, each run that could use the
// tools fails with it.
func AddTool[In, Out any](
	to ToolHolder, name, description string, fn func(context.Context, In) (Out, error), opts ...ToolOption,
) error {
	t, err := newTypedTool(name, description, fn, opts)
	return to.toolSet().add(t, err)
}

// AddRawTool offers a tool whose arguments are only known at run time: [ToolSchema] declares
// them, without it there are none. fn receives the arguments as the model wrote them;
// that they are a JSON object is all that was checked. Otherwise see [AddTool].
func AddRawTool[Out any](
	to ToolHolder, name, description string, fn func(context.Context, json.RawMessage) (Out, error), opts ...ToolOption,
) error {
	t, err := newRawTool(name, description, fn, opts)
	return to.toolSet().add(t, err)
}

// maxToolTimeout is the protocol's.
const maxToolTimeout = 24 * time.Hour

// resultMargin is how much longer the server waits than the handler may run: the
// error result of a handler that times out arrives within it.
const resultMargin = 2 * time.Second

// serverTimeout is how long the server has to wait for a handler that has a
// timeout; nil for none.
func serverTimeout(d time.Duration) *durationpb.Duration {
	if d <= 0 {
		return nil
	}
	return durationpb.New(min(d+resultMargin, maxToolTimeout))
}

// setTimeout gives a tool its timeout, nil for none.
func (t *tool) setTimeout(d *time.Duration) error {
	if d == nil {
		return nil
	}
	if *d <= 0 || *d > maxToolTimeout {
		return fmt.Errorf("tool %q: client.ToolTimeout: want more than 0 and at most %s, got %s",
			t.proto.GetName(), maxToolTimeout, *d)
	}
	t.timeout, t.proto.Timeout = *d, serverTimeout(*d)
	return nil
}

// checkTool checks a declaration by the protocol's rules.
func checkTool(t *agentdv1.Tool) error {
	name := t.GetName()
	switch {
	case !toolName.MatchString(name):
		return fmt.Errorf("tool name %.80q must match %s", name, toolName)
	case t.GetDescription() == "":
		return fmt.Errorf("tool %q needs a description: the model chooses by it", name)
	case len(t.GetDescription()) > maxDescription:
		return fmt.Errorf("tool %q: the description has %d bytes, at most %d are allowed",
			name, len(t.GetDescription()), maxDescription)
	case len(t.GetInputSchema()) > maxSchema:
		return fmt.Errorf(
			"tool %q: the input schema has %d bytes, at most %d are allowed", name, len(t.GetInputSchema()), maxSchema)
	default:
		return nil
	}
}
