package gestalt

import (
	"mime"
	"net/url"
	"path"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	gestaltv1 "github.com/apzuk3/agentd/gen/proto/go/gestalt/provider/v1"
)

// request is a turn as the daemon is to run it, but for the tools of the host.
func (t *trees) request(req *gestaltv1.CreateTurnRequest) (*agentdv1.RunRequest_ExecuteRequest, error) {
	tree, err := t.tree(req.GetModel())
	if err != nil {
		return nil, err
	}
	ex := &agentdv1.RunRequest_ExecuteRequest{
		Agent: tree, SessionId: new(req.GetSessionId()), TurnId: req.GetTurnId(), IdempotencyKey: req.GetTurnId(),
		// The turns of a session run one after the other.
		OnBusy:       agentdv1.OnBusy_ON_BUSY_ENQUEUE,
		OnDisconnect: agentdv1.OnDisconnect_ON_DISCONNECT_CONTINUE,
	}
	if err := setPrompt(ex, req.GetMessages()); err != nil {
		return nil, err
	}
	if err := setOptions(tree, req.GetModelOptions()); err != nil {
		return nil, err
	}
	return ex, setSchema(tree, req.GetResponseSchema())
}

// withTools adds the tools of the host to a request.
func (t *trees) withTools(ex *agentdv1.RunRequest_ExecuteRequest, tools []hostTool) {
	offer(ex.GetAgent(), tools)
	for i := range tools {
		ex.Tools = append(ex.Tools, t.declare(&tools[i]))
	}
}

// setPrompt makes a prompt of messages: what users say, and what the system says as the instruction.
func setPrompt(ex *agentdv1.RunRequest_ExecuteRequest, messages []*gestaltv1.AgentMessage) error {
	var instructions []string
	var said []*agentdv1.Part
	for i, m := range messages {
		parts, err := partsOf(m, i)
		if err != nil {
			return err
		}
		switch m.GetRole() {
		case "user":
			said = append(said, parts...)
		case "system":
			for _, part := range parts {
				if part.GetFile() != nil {
					return invalidf("messages[%d]: an image in a message of the system: say it as the user", i)
				}
				instructions = append(instructions, part.GetText())
			}
		default:
			return invalidf("messages[%d].role is %.40q: want user or system; what was said before is in the session",
				i, m.GetRole())
		}
	}
	if len(said) == 0 {
		return invalidf("messages: the user says nothing: want a message of the role user with text or parts")
	}
	ex.Instruction = strings.Join(instructions, "\n\n")
	if text := said[0].GetText(); text != "" {
		ex.UserPrompt, said = text, said[1:]
	}
	ex.UserParts = said
	return nil
}

// partsOf returns what a message says.
func partsOf(m *gestaltv1.AgentMessage, i int) (out []*agentdv1.Part, err error) {
	if m.GetText() != "" {
		out = append(out, textPart(m.GetText()))
	}
	for j, part := range m.GetParts() {
		switch part.GetType() {
		case gestaltv1.AgentMessagePartType_AGENT_MESSAGE_PART_TYPE_TEXT:
			if part.GetText() != "" {
				out = append(out, textPart(part.GetText()))
			}
		case gestaltv1.AgentMessagePartType_AGENT_MESSAGE_PART_TYPE_JSON:
			text, err := jsonText(part.GetJson())
			if err != nil {
				return nil, invalidf("messages[%d].parts[%d].json: %w", i, j, err)
			}
			out = append(out, textPart(text))
		case gestaltv1.AgentMessagePartType_AGENT_MESSAGE_PART_TYPE_IMAGE_REF:
			uri, kind := part.GetImageRef().GetUri(), part.GetImageRef().GetMimeType()
			if kind == "" {
				kind = imageKind(uri)
			}
			if uri == "" || kind == "" {
				return nil, invalidf("messages[%d].parts[%d].image_ref: want uri and mime_type", i, j)
			}
			out = append(out, &agentdv1.Part{Content: &agentdv1.Part_File{
				File: &agentdv1.FileUri{Uri: uri, MimeType: kind},
			}})
		default:
			return nil, invalidf("messages[%d].parts[%d].type is %s: want TEXT, JSON or IMAGE_REF", i, j,
				strings.TrimPrefix(part.GetType().String(), "AGENT_MESSAGE_PART_TYPE_"))
		}
	}
	return out, nil
}

func textPart(text string) *agentdv1.Part {
	return &agentdv1.Part{Content: &agentdv1.Part_Text{Text: text}}
}

// jsonText is the JSON of a message, without the white space that differs from run to run.
func jsonText(m proto.Message) (string, error) {
	text, err := protojson.MarshalOptions{}.Marshal(m)
	if err != nil {
		return "", err
	}
	return compact(text), nil
}

// imageKind is the media type of an image by the ending of its address, "" if that says none.
func imageKind(uri string) string {
	u, err := url.Parse(uri)
	if err != nil {
		return ""
	}
	kind, _, err := mime.ParseMediaType(mime.TypeByExtension(path.Ext(u.Path)))
	if err != nil || !strings.HasPrefix(kind, "image/") {
		return ""
	}
	return kind
}
