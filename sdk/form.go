package orrery

import (
	cryptorand "crypto/rand"
	"fmt"
	"io"
	"mime/multipart"
)

// Form is a body with files and fields, multipart/form-data. It is sent while the files are read.
type Form struct {
	// Fields are sent before the files, in their order.
	Fields []FormField
	Files  []FormFile
}

// FormField is a field of a form.
type FormField struct{ Name, Value string }

// FormFile is a file of a form.
type FormFile struct {
	// Field is the name of the field that has the file.
	Field string
	// Name is the name of the file.
	Name string
	// Open returns the bytes from the start. It is called for each attempt.
	Open func() (io.ReadCloser, error)
}

// content returns the form as a body that can be sent several times.
func (f *Form) content() *Content {
	boundary := cryptorand.Text()
	return &Content{
		Type: "multipart/form-data; boundary=" + boundary,
		Open: func() (io.ReadCloser, error) {
			reader, writer := io.Pipe()
			// The writer ends with the form, or when the reader is closed.
			go func() { writer.CloseWithError(f.write(writer, boundary)) }()
			return reader, nil
		},
	}
}

// write writes the form.
func (f *Form) write(to io.Writer, boundary string) error {
	form := multipart.NewWriter(to)
	if err := form.SetBoundary(boundary); err != nil {
		return err
	}
	for _, field := range f.Fields {
		if err := form.WriteField(field.Name, field.Value); err != nil {
			return err
		}
	}
	for _, file := range f.Files {
		if err := file.write(form); err != nil {
			return fmt.Errorf("file %s of the form: %w", file.Name, err)
		}
	}
	return form.Close()
}

func (f FormFile) write(form *multipart.Writer) error {
	part, err := form.CreateFormFile(f.Field, f.Name)
	if err != nil {
		return err
	}
	content, err := f.Open()
	if err != nil {
		return err
	}
	defer content.Close()
	_, err = io.Copy(part, content)
	return err
}
